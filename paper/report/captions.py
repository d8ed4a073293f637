"""Captions: what each figure shows, and what the paper reports."""

from __future__ import annotations

CAPTIONS: dict[str, str] = {
    "toy": "Background: the class predicted at each point of the plane, after each task. The "
    "linear probe and the MLP change their predictions everywhere when two new classes arrive. "
    "The bottleneck changes them only where the new points select keys. The number is the "
    "accuracy on all tasks so far.",
    "cifar10": "Accuracy on all ten classes (left) and on the classes seen so far (right), which "
    "arrive two at a time. A method that forgets stays near the share of the newest task. A "
    "method that does not forget ends at its tick, the accuracy of the same model trained on "
    "i.i.d. data.",
    "loss": "Left: loss on the present task. Right: loss on the whole test set. The bottleneck's "
    "class-incremental loss (solid) ends at its i.i.d. loss (dashed). The linear probe's test "
    "loss grows although its train loss is small.",
    "key-dim": "The base model with keys of other dimensions. The paper reports the best "
    "accuracy between 8 and 12.",
    "pairs": "The base model with other numbers of pairs per codebook. The paper reports a small "
    "loss with four times fewer pairs, and a gap between i.i.d. (dashed) and class-incremental "
    "training at 256 pairs or fewer.",
    "codebooks": "The base model with other numbers of codebooks. The paper reports that "
    "codebooks matter slightly more than pairs.",
    "key-data": "Keys fitted, without labels, to different data sets. The first bars are the "
    "oracle: keys fitted to the target's own images. The paper reports that other data sets are "
    "hardly worse.",
    "label-smoothing": "The base model with other label smoothing. The paper reports no effect.",
    "granularity": "The same classes in ten, five and two tasks. The paper reports the same "
    "final accuracy.",
    "fly": "The FlyModel within tasks of 2,000 epochs, and its final accuracy by the number of "
    "epochs per task. One epoch does well. The paper reports that it learns at the beginning of a "
    "task, drops within it, and ends at a very low accuracy.",
    "weight-decay": "Linear probe and MLP with three weight decays, the paper's “ridge” "
    "baselines. Lines near the share of the newest task have forgotten all earlier tasks.",
    "cifar100": "A hundred classes in fifty tasks, with keys from CIFAR-10. The accuracy on all "
    "classes (left) should rise with their number and end at the i.i.d. accuracy (tick).",
    "imagenet": "A thousand classes in five hundred tasks, evaluated after the last one. Rows "
    "marked synthetic are measured on made-up embeddings of ImageNet's shape: their times and "
    "memory are meaningful, their accuracies are not.",
    "noise": "Accuracy under Gaussian noise of size α, on the original pixels in [0, 1], on the "
    "normalised input of the encoder, or on embeddings in units of their standard deviation. The "
    "paper reports no loss up to α = 0.1. What all three classifiers lose is lost by the encoder.",
    "values": "Relative difference between values learned class-incrementally and from i.i.d. "
    "data with the same keys: Σ|CI − i.i.d.| / Σ|CI|.",
    "codes": "Left: how often pairs are fetched over 2,000 epochs; the leftmost bar counts pairs "
    "that are never used. Right: how many classes share a pair.",
    "decoders": "Trained decoders in place of the mean. The paper suggests that they may help on "
    "i.i.d. data, and should be fixed or regularised on class-incremental data.",
    "straight-through": "Gradients into keys and projection. Keys that learn can forget: compare "
    "the two orders.",
    "shift-signal": "AUROC of the distance from keys: how well single rows of a shifted "
    "distribution are told from test rows of CIFAR-10 (50 % is chance). A batch is detected if a "
    "two-sample test on these distances has p < 0.05; without a shift, about 5 % should be.",
    "growth": "Keys are fitted to half of the classes, which are learned first. Then the other "
    "half arrives: with these keys, with pairs added by `grow_keys`, and with keys fitted to all "
    "rows from the start.",
    "refit": "Keys from other data that stay, or move towards unlabelled rows before each task: "
    "those of the task, or those of the whole training set. Values keep their keys.",
    "generation": "Values that a pre-trained decoder turns into embeddings. The bars are the "
    "share of decoded test embeddings that lie nearest to the mean of their own class.",
    "theorem": "Left: the growth of the loss under perturbations of size α. Right: the growth of "
    "the bound's constant with the number of codebooks. Where no code changes, the bottleneck's "
    "shift term must be exactly zero. Its complexity term is zero by the theorem and was not "
    "measured.",
    "all-methods": "Beyond the paper: final accuracy of every classifier on the same embeddings, "
    "one bar per data set. The table adds the average incremental accuracy, the forgetting, the "
    "training time and the size of the model.",
}
