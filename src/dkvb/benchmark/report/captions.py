"""What to see in each figure: what the paper says of it, and where to look."""

from __future__ import annotations

CAPTIONS: dict[str, str] = {
    "toy": "Background: the class predicted at each point of the plane, after each stage. Linear "
    "probe and MLP repaint the whole plane for the two newest classes; the bottleneck repaints "
    "only cells whose keys the new points select. The number is the share of right answers on all "
    "stages so far.",
    "cifar10": "Accuracy on all ten classes while they arrive two at a time. A method that forgets "
    "stays near the share of the newest stage; one that does not climbs to the dashed line, which "
    "is the same model trained on everything at once.",
    "loss": "Left: loss on the stage being learned. Right: loss on the whole test set. For the "
    "bottleneck the solid line (class-incremental) ends on the dashed one (iid); the linear "
    "probe's test loss runs away while its train loss is small.",
    "key-dim": "The base model with keys of other dimensions. The paper finds the best between 8 "
    "and 12.",
    "pairs": "The base model with other numbers of pairs a codebook. The paper loses little with "
    "four times fewer, and sees iid (dashed) and class-incremental part at 256 or fewer.",
    "codebooks": "The base model with other numbers of codebooks. The paper finds them to "
    "matter slightly more than pairs.",
    "key-data": "Keys fitted, without labels, to different data. The first bars are the oracle: "
    "the target's own images. The paper finds the others hardly worse.",
    "label-smoothing": "The base model with other label smoothing: a flat line is what the paper "
    "reports.",
    "granularity": "The same classes in ten, five and two stages. The lines take different "
    "paths, and by the paper end at the same height.",
    "fly": "Final accuracy of the FlyModel after learning each stage for more and more epochs. One "
    "pass does well; by the paper, repetition saturates its weights and it collapses.",
    "weight-decay": "Linear probe and MLP with three weight decays, the paper's “ridge” rivals. "
    "Lines that stay near the share of the newest stage have forgotten all before it.",
    "cifar100": "A hundred classes in fifty stages, with keys from CIFAR-10. The line should "
    "climb with the classes learned and end at the dashed level, which is iid.",
    "imagenet": "A thousand classes in five hundred stages, tested at the end. Rows called "
    "synthetic are of a stand-in of ImageNet's shape: it shows time and memory, and its accuracies "
    "mean nothing.",
    "noise": "Accuracy under Gaussian noise of growing size. The paper: harmless until α = 0.1. "
    "Noise too small to change a code changes no answer of the bottleneck.",
    "values": "How far values learned class-incrementally are from those learned iid, on the same "
    "keys: Σ|CI − iid| / Σ|CI|. Small means that the order of learning left almost no trace.",
    "codes": "Left: how often pairs are fetched over 2,000 epochs, the leftmost bar being those "
    "never used. Right: how many classes share a pair.",
    "decoders": "A trained decoder in place of the mean. The paper suggests that it may help iid, "
    "and should be fixed or regularised when classes come one after the other.",
    "straight-through": "Gradients into keys and projection. What keys learn, they can forget: "
    "compare the two orders.",
    "theorem": "Left: how much the loss grows under perturbations of size α. Right: how the "
    "bound's constant grows with codebooks. The table has the other terms; where no code changes, "
    "the bottleneck's shift term must be exactly zero. Its complexity is zero by the theorem, "
    "and not measured.",
    "field": "Beyond the paper: final accuracy of every classifier on the same embeddings, a bar "
    "for each data set. The table adds the way there, what was forgotten, the time it took to "
    "learn, and the size of what is kept.",
}
MAPS = (
    "Heads and keys (dark) of the first codebook, in the plane: on the left of the data that keys "
    "were fitted to, on the right of the target, coloured by class. By the paper, keys cover the "
    "former, and the latter more sparsely. First seed."
)
CONFUSION = (
    "Confusion matrices at the end of the stream: a row a true class, a column a predicted one, "
    "darker for more, in the order in which classes were learned; first seed, class-incremental. "
    "A method that remembers has a dark diagonal; one that forgets answers with the classes of the "
    "last stage, the columns on the right."
)
OVER_TIME = (
    "Accuracy on each class (a row, in the order learned) along the stream (left to right), darker "
    "for higher; first seed, class-incremental. A class that is remembered stays dark to the right "
    "of its stage; one that is forgotten fades."
)
