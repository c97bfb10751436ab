"""``embed`` of the names of classes."""

from __future__ import annotations

from pictures import add_text_clip, write_images

from federatedscope_ggeur.cli import main


def settings_of(tmp_path, root, data_type) -> list[str]:
    return [
        "data.type", data_type, "data.root", str(root),
        "data.splits", "[0.6, 0.0, 0.4]", "data.splitter", "iid",
        "data.splitter_args", "[]", "federate.client_num", "2",
        "ggeur.encoder.name", "open_clip",
        "ggeur.encoder.model", add_text_clip(tmp_path),
        "ggeur.encoder.pretrained", "none", "ggeur.encoder.num_workers", "0",
        "ggeur.encoder.cache", str(tmp_path / "cache"),
        "outdir", str(tmp_path / "runs"), "ggeur.closed_form", "zeroshot",
    ]  # fmt: skip


def text_files(tmp_path) -> set[str]:
    return {path.name for path in (tmp_path / "cache").glob("text-*")}


def test_embed_makes_text_and_a_new_template_makes_text_alone(
    tmp_path, quickstart, capsys
):
    images = write_images(tmp_path / "images")
    told = settings_of(tmp_path, images, "image_folder@ggeur")
    assert main(["embed", "--cfg", str(quickstart), *told]) == 0
    out = capsys.readouterr().out
    assert "30 images" in out
    assert "text features of 3 classes: 3 prompts now" in out
    first = text_files(tmp_path)
    assert main(["embed", "--cfg", str(quickstart), *told]) == 0
    out = capsys.readouterr().out
    assert "all of them were there already" in out
    assert "text features of 3 classes: they were there already" in out
    told += ["ggeur.text.templates", "['{}, drawn']"]
    assert main(["embed", "--cfg", str(quickstart), *told]) == 0
    out = capsys.readouterr().out
    assert "all of them were there already" in out
    assert "3 prompts now" in out
    assert len(text_files(tmp_path) - first) == 1
    assert main(["--cfg", str(quickstart), *told]) == 0
    assert len(text_files(tmp_path)) == 2


def test_a_class_renamed_makes_the_text_anew_and_only_that(
    tmp_path, quickstart, embeddings_folder, capsys
):
    (embeddings_folder / "text.npz").unlink()
    listed = embeddings_folder / "class_names.txt"
    names = [f"thing {i}" for i in range(12)]
    listed.write_text("\n".join(names))
    before = {p: p.stat().st_mtime_ns for p in embeddings_folder.glob("*.npz")}
    told = settings_of(tmp_path, embeddings_folder, "embeddings@ggeur")
    told += ["federate.client_num", "3"]
    for expected in ("12 prompts now", "they were there already"):
        assert main(["embed", "--cfg", str(quickstart), *told]) == 0
        assert expected in capsys.readouterr().out
    names[3] = "another"
    listed.write_text("\n".join(names))
    assert main(["embed", "--cfg", str(quickstart), *told]) == 0
    assert "12 prompts now" in capsys.readouterr().out
    assert before == {p: p.stat().st_mtime_ns for p in embeddings_folder.glob("*.npz")}
    assert len(text_files(tmp_path)) == 2
    assert main(["--cfg", str(quickstart), *told]) == 0
