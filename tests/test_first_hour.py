"""The first hour of a new user, one test per line of what it must show.

Lines whose test stands elsewhere are listed in `ELSEWHERE`, by point, and a test holds that list.
"""

import ast
import io
import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import typer

import dkvb
from dkvb._support.files import FileError
from dkvb.cli import app

from .store.commands import dkvb as run
from .store.commands import good

ROOT = Path(__file__).parents[1]
STORE, EMBEDDING, CLI = "store/", "embedding/", "cli/"
ELSEWHERE = {
    "1 small data works by default": [
        ("memory/test_small_streams.py", None),
        ("bottleneck/test_classifier.py", "test_every_method_answers_of_few_rows"),
    ],
    "2 learn warns of losses, --dry-run changes nothing": [
        (STORE + "test_manners.py", "test_learn_prints_a_line_and_warns_of_losses"),
        (STORE + "test_manners.py", "test_old_classes_are_measured_on_held_out_rows_where_they_"),
    ],
    "3 one way to open a model, never stale": [
        (STORE + "test_predict.py", "test_no_way_to_open_a_model_misses_what_its_journal_holds"),
        (STORE + "test_predict.py", "test_load_takes_folders_and_files"),
    ],
    "4 predict: formats, --top, images, texts, standard input": [
        (STORE + "test_predict.py", "test_every_format_says_the_same"),
        (STORE + "test_predict.py", "test_top_names_so_many_classes"),
        (STORE + "test_predict.py", "test_single_images_folders_and_standard_input"),
        (STORE + "test_predict.py", "test_texts_as_arguments_and_from_standard_input"),
        (EMBEDDING + "test_data_options.py", "test_files_of_dkvb_embed_carry_the_names_of_items"),
    ],
    "5 photos: EXIF, HEIC, dot files, empty classes, loose files": [
        (EMBEDDING + "test_photos.py", "test_a_photo_is_upright_as_its_exif_orientation_says"),
        (EMBEDDING + "test_photos.py", "test_heic_is_read_by_its_extra_or_named_in_a_warning"),
        (EMBEDDING + "test_photos.py", "test_dot_files_are_passed_over"),
        (EMBEDDING + "test_photos.py", "test_empty_classes_and_loose_images_are_reported"),
    ],
    "6 honest accuracy: --split, unknown labels apart, evaluate --data": [
        (EMBEDDING + "test_photos.py", "test_the_split_that_was_taken_is_named"),
        (STORE + "test_predict.py", "test_labels_that_the_model_does_not_know_are_reported_apart"),
        (CLI + "test_evaluate_data.py", "test_data_alone_cross_validates_the_default_classifier_"),
    ],
    "7 no work twice: cache, codes once": [
        (EMBEDDING + "test_data_options.py", "test_fit_learn_and_predict_embed_a_folder_once"),
        (
            STORE + "test_predict.py",
            "test_predict_finds_keys_and_distances_in_one_pass",
        ),
        (EMBEDDING + "test_cli.py", "test_quiet_prints_nothing_and_pipes_show_no_bar"),
        (EMBEDDING + "test_cli.py", "test_a_terminal_shows_a_bar"),
    ],
    "8 hints that exist, the same options, dialects, other files": [
        (STORE + "test_manners.py", "test_every_option_that_a_message_names_exists"),
        (EMBEDDING + "test_data_options.py", "test_commands_have_the_same_options_for_data"),
        (EMBEDDING + "test_data_options.py", "test_tables_in_other_dialects"),
        (EMBEDDING + "test_data_options.py", "test_labelled_embeddings_in_other_files_are_learned"),
    ],
    "9 ONNX that takes a picture; texts are told apart": [
        ("export/test_pictures.py", "test_from_pictures_to_probabilities"),
        ("export/test_pictures.py", "test_real_jpegs_with_views_and_layers"),
        ("export/test_pictures.py", "test_encoders_that_cannot_be_exported_say_what_to_do"),
    ],
    "11 manners": [
        (STORE + "test_manners.py", "test_help_is_a_letter_away_for_every_command"),
        (STORE + "test_manners.py", "test_version_and_completion"),
        (STORE + "test_manners.py", "test_plural_forms"),
        (STORE + "test_manners.py", "test_tables_fit_eighty_columns"),
        (STORE + "test_predict.py", "test_a_table_fits_eighty_columns"),
        (STORE + "test_summary.py", "test_inspect_and_history_import_no_torch"),
        (STORE + "test_manners.py", "test_the_same_file_twice_is_warned_about"),
        (STORE + "test_manners.py", "test_waiting_for_a_busy_model"),
        (STORE + "test_manners.py", "test_keys_come_from_a_file_of_keys_or_from_a_model"),
    ],
    "12 scikit-learn: weights, logarithms, tensors, DataLoaders": [
        ("bottleneck/test_classifier.py", "test_whole_weights_repeat_rows"),
        ("bottleneck/test_classifier.py", "test_tensors_of_any_kind_are_taken"),
        ("bottleneck/test_fit_keys.py", "test_data_loaders"),
    ],
    "13 the curve, blurry and long-tailed streams, own classifiers": [
        ("evaluation/test_plots.py", "test_both_accuracies_are_lines_and_iid_is_a_tick_at_the_"),
        ("evaluation/test_streams.py", "test_a_blurry_stream_has_every_sample_once"),
        ("evaluation/test_streams.py", "test_a_long_tail_decays_exponentially_to_the_imbalance_"),
        ("evaluation/test_custom.py", "test_any_estimator_with_partial_fit_is_trained_on_a_stream"),
        (CLI + "test_evaluate_data.py", "test_own_classifiers_are_cross_validated"),
    ],
}


@pytest.mark.parametrize("point", ELSEWHERE)
def test_the_tests_of_other_points_are_there(point):
    for file, name in ELSEWHERE[point]:
        tree = ast.parse((ROOT / "tests" / file).read_text())
        tests = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        assert any(test.startswith(name or "test_") for test in tests), f"{file}: {name}"


# ------------------------------------------------------------------------------------ first model
def rows_of(labels, n, seed):
    """So many embeddings of each label."""
    rng = np.random.default_rng(seed)
    y = np.repeat(labels, n)
    centres = np.random.default_rng(9).normal(size=(26, 12))
    x = centres[[ord(label[0]) - 97 for label in y]] + rng.normal(size=(len(y), 12)) / 4
    return x.astype(np.float32), y


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, labels, seed in (("first", ["ant", "bee", "cow"], 1), ("monday", ["elk"], 2)):
        x, y = rows_of(labels, 10, seed)
        np.savez(f"{name}.npz", x=x, y=y)
    good("fit", "model", "--data", "first.npz")
    return tmp_path


def test_1_the_default_needs_no_keys(place):
    assert isinstance(dkvb.load("model"), dkvb.KernelClassifier)


def test_1_a_new_class_costs_the_old_ones_nothing_that_class_means_would_not_lose(place):
    x, y = rows_of(["ant", "bee", "cow"], 40, 3)
    good("fit", "means", "--data", "first.npz", "--classifier", "prototypes")
    for model in ("model", "means"):
        good("learn", model, "--data", "monday.npz")
    default, means = (np.mean(dkvb.load(model).predict(x) == y) for model in ("model", "means"))
    assert default >= means - 0.01


def test_2_learn_tells_the_old_classes_before_and_after(place):
    told = good("learn", "model", "--data", "monday.npz")
    assert "accuracy on the old classes, leave-one-out: 100.0 % before, 100.0 % after" in told


def test_2_a_classifier_that_cannot_forget_is_not_told_to(place):
    x, y = rows_of(["ant"], 10, 1)
    good("fit", "values", "--data", "first.npz", "--classifier", "bottleneck")
    np.savez("wrong.npz", x=x, y=["zebra"] * len(x))
    np.savez("held.npz", x=x, y=y)
    done = run("learn", "values", "--data", "wrong.npz", "--test", "held.npz")
    assert done.exit_code == 0, done.output
    assert "forget" not in done.stderr


def test_3_a_snapshot_beside_its_journal_is_followed(place):
    good("learn", "model", "--data", "monday.npz")
    assert "elk" in dkvb.load("model/model.safetensors").classes_
    with pytest.raises(FileError, match=r"use dkvb\.load"):
        dkvb.KernelClassifier.load("model/model.safetensors")


def test_7_the_target_is_checked_before_the_work(place):
    Path("photos").mkdir()
    Path("photos/note.txt").write_text("mine")
    for target, says in (("model", "there is a model"), ("photos", "found note.txt and no model")):
        done = run("fit", target, "--data", "there-is-none.npz")
        assert done.exit_code == 2
        assert says in done.stderr


class Terminal(io.StringIO):
    def isatty(self):
        return True


def seen_on_a_terminal(monkeypatch, *arguments):
    """What a command writes to standard error, where that is a terminal and any work is long."""
    terminal = Terminal()
    monkeypatch.setattr("dkvb.cli._working.PATIENCE", 0.0)
    for name, value in (("TERM", "xterm"), ("COLUMNS", "120")):
        monkeypatch.setenv(name, value)
    with monkeypatch.context() as context:
        context.setattr(sys, "stderr", terminal)
        command = typer.main.get_command(app)
        assert command([str(one) for one in arguments], standalone_mode=False) in (None, 0)
    return terminal.getvalue()


STREAM = ("evaluate", "--train", "first.npz", "--test", "first.npz", "--classes-per-task", "1",
          "--classifier", "prototypes", "--seeds", "1", "--out", "runs")  # fmt: skip
LONG = {
    "learning 30 rows": ("fit", "new", "--data", "first.npz"),
    "learning 30 rows to fit keys": ("fit", "keys", "--data", "first.npz", "--classifier",
                                     "bottleneck:n_codebooks=4,key_dim=2"),
    "learning 10 rows": ("learn", "model", "--data", "monday.npz"),
    "measuring the old classes": ("learn", "model", "--data", "monday.npz"),
    "forgetting 1 class": ("forget", "model", "--label", "bee"),
    "merging 1 model": ("merge", "other", "model"),
    "predicting 30 items": ("predict", "model", "--data", "first.npz", "--out", "a.csv"),
    "exporting to model.onnx": ("export", "model", "model.onnx"),
    "cross-validating kernel": ("evaluate", "--data", "first.npz", "--folds", "2"),
    "run/s": STREAM,
}  # fmt: skip


@pytest.mark.parametrize("shown", LONG)
def test_7_a_bar_for_long_work_on_a_terminal_and_none_in_a_pipe(place, monkeypatch, shown):
    assert shown.partition(" to ")[0] in seen_on_a_terminal(monkeypatch, *LONG[shown])
    for path in ("model", "new", "keys", "other", "runs"):
        shutil.rmtree(path, ignore_errors=True)
    for path in ("model.onnx", "a.csv"):
        Path(path).unlink(missing_ok=True)
    good("fit", "model", "--data", "first.npz")
    done = run(*LONG[shown])
    assert done.exit_code == 0, done.output
    assert shown.partition(" to ")[0] not in done.stderr
    assert "\r" not in done.stderr


def test_7_short_work_has_no_bar(place, monkeypatch):
    monkeypatch.setattr("threading.Timer.start", lambda timer: None)  # two seconds never pass
    monkeypatch.setattr("threading.Timer.join", lambda timer: None)
    assert "learning" not in seen_on_a_terminal(monkeypatch, *LONG["learning 10 rows"])


def test_11_the_command_starts_without_torch(place):
    program = "import sys, dkvb.cli; print(sorted({'torch', 'sklearn'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_11_history_names_operations_and_rows(place):
    good("learn", "model", "--data", "monday.npz")
    fit, learn = good("history", "model").splitlines()
    assert fit.split()[1:] == ["fit", "30", "rows"]
    assert learn.split()[1:] == ["learn", "10", "rows"]


@pytest.mark.parametrize("stream", [("--order", "blurry"), ("--imbalance-factor", "5")])
def test_13_evaluate_takes_blurry_and_long_tailed_streams(place, stream):
    told = good(
        *("evaluate", "--train", "first.npz", "--test", "first.npz", "--seeds", "1", *stream),
        *("--classifier", "prototypes", "--classes-per-task", "1", "--out", "runs", "--json"),
    )
    (summary,) = json.loads(told).values()
    assert summary["final_accuracy"]["mean"] > 90


def test_13_the_readme_leads_with_the_best_classifier_beside_class_means():
    first = (ROOT / "README.md").read_text().partition("## ")[0]
    assert first.index("KernelClassifier") < first.index("nearest class mean")


OWN = """
from sklearn.linear_model import SGDClassifier

class Mine(SGDClassifier):
    pass
"""


def test_13_a_class_of_ones_own_is_evaluated_on_a_stream(place, monkeypatch):
    Path("own_methods.py").write_text(OWN)
    monkeypatch.syspath_prepend(place)
    told = good(
        *("evaluate", "--train", "first.npz", "--test", "first.npz", "--seeds", "1", "--json"),
        *("--classifier", "own_methods:Mine", "--classes-per-task", "1", "--out", "runs"),
    )
    assert list(json.loads(told)) == ["own_methods:Mine"]
    assert Path("runs/accuracy.png").stat().st_size > 1000  # on all classes, and on those seen


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_13_make_demo_says_what_it_installs_before_it_does():
    command = ["make", "--dry-run", "demo", "VENV=there-is-none"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.index("pinned packages") < done.stdout.index("pip install")


def test_13_the_package_has_project_urls():
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
