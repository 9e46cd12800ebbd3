"""The planes of a rank: pieces, the hash, the bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from lynx_ascend.codec import Calibration, ChannelWidths, servable_codecs
from lynx_ascend.codec.calibration import PlaneCalibration
from lynx_ascend.errors import ConfigError, ProtocolError
from lynx_ascend.stream.types import Kind, PieceKey
from lynx_ascend.vllm.planes import TransferLimits

LENGTHS = (1, 31, 32, 33, 255, 256, 257, 512, 700, 2049)


@pytest.fixture
def table(lab):
    return lab.table(lab.caches(), piece_kb=40)


@pytest.mark.parametrize("codec", servable_codecs())
@pytest.mark.parametrize("piece_kb", [1, 40, 512])
def test_pieces_cover_every_page_once(lab, codec, piece_kb):
    table = lab.table(lab.caches(), piece_kb=piece_kb)
    for tokens in LENGTHS:
        seen = {(p.layer, p.index): [] for p in table.planes}
        for plane, key, shape in table.pieces(table.codec(codec), tokens):
            assert table.find(key) is plane
            end = min(tokens, (key.first_page + key.pages) * 256)
            assert (shape.first_token, shape.first_token + shape.tokens) == (key.first_page * 256, end)
            seen[key.layer, key.plane] += range(key.first_page, key.first_page + key.pages)
        assert all(pages == list(range(table.pages(tokens))) for pages in seen.values())


def test_pieces_are_about_as_large_as_asked(lab):
    table = lab.table(lab.caches(), piece_kb=40)
    codec = table.codec("lynx")
    for plane, _, shape in table.pieces(codec, 2048):
        assert codec.anchor_bytes(shape, plane.spec) <= 40_000
    assert len(list(table.pieces(codec, 2048))) < len(table.planes) * table.pages(2048)


@pytest.mark.parametrize("codec", servable_codecs())
@pytest.mark.parametrize("tokens", LENGTHS)
def test_planned_bytes_bound_what_is_encoded(lab, table, codec, tokens):
    coder, total = table.codec(codec), 0
    for plane, _, shape in table.pieces(coder, tokens):
        values = lab.laplacian(shape.tokens, plane.heads, plane.dim, plane.dtype)
        coded = coder.encode(values, plane.spec, first_token=shape.first_token, recent=shape.recent)
        total += coded.anchor.numel() + coded.residual.numel()
    assert total <= table.planned_bytes(coder, tokens) <= 2 * total + (1 << 20)


def test_the_hash_ignores_what_only_the_encoder_knows(lab):
    caches = lab.caches()
    same = {
        lab.table(caches, center=center, piece_kb=piece_kb).layout_hash()
        for center in ("mean", "midrange")
        for piece_kb in (1, 9)
    }
    assert len(same) == 1
    assert lab.table(lab.caches(blocks=5)).layout_hash() in same, (
        "the size of the pool is an engine's own affair"
    )


def calibrated(path, layer, plane, shape=(2, 32), chunk=64):
    """A calibration file for one plane, widths 1 to 8 in turns."""
    widths = ChannelWidths(torch.arange(shape[0] * shape[1]).view(shape) % 8 + 1)
    Calibration({(layer, plane): PlaneCalibration(chunk, 0.5, widths)}).save(path)
    return str(path)


def test_the_hash_changes_with_what_both_ends_must_share(lab, tmp_path):
    caches = lab.caches()
    renamed = {f"model.{name}": cache for name, cache in caches.items()}
    files = [calibrated(tmp_path / f"{n}.yaml", 1, "k", chunk=chunk) for n, chunk in enumerate((32, 64))]
    hashes = [
        lab.table(caches).layout_hash(),
        lab.table(caches, sinks=5).layout_hash(),
        lab.table(caches, recent=5).layout_hash(),
        *(lab.table(caches, calibration=file).layout_hash() for file in files),
        lab.table(renamed).layout_hash(),
        lab.table(lab.caches(layers=3)).layout_hash(),
        lab.table(lab.caches(heads=3)).layout_hash(),
        lab.table(lab.caches(dim=64)).layout_hash(),
        lab.table(lab.caches(dtype=torch.bfloat16)).layout_hash(),
        lab.table(lab.caches(dtype=torch.float16)).layout_hash(),
    ]
    assert len(set(hashes)) == len(hashes)


def test_a_calibration_reaches_its_plane(lab, tmp_path):
    table = lab.table(lab.caches(), calibration=calibrated(tmp_path / "some.yaml", 1, "v", chunk=128))
    assert [(p.layer, p.name) for p in table.planes if p.spec.widths is not None] == [(1, "v")]
    assert table.planes[3].spec.chunk == 128
    assert table.planes[3].spec.token_scale


@pytest.mark.parametrize("shape", [(3, 32), (2, 64)])
def test_the_calibration_of_another_model_is_refused(lab, tmp_path, shape):
    file = calibrated(tmp_path / "some.yaml", 0, "k", shape)
    with pytest.raises(ConfigError, match="calibrate"):
        lab.table(lab.caches(), calibration=file)


@pytest.mark.parametrize(
    ("tokens", "recent"), [(600, [0, 0, 16]), (512, [0, 16]), (517, [0, 11, 5]), (300, [0, 16]), (7, [7])]
)
def test_the_last_tokens_of_a_prompt_are_recent(lab, tokens, recent):
    table = lab.table(lab.caches(layers=1), piece_kb=1)
    pieces = table.pieces(table.codec("lynx"), tokens)
    assert [shape.recent for plane, _, shape in pieces if plane.index == 0] == recent


def test_a_shared_cache_is_sent_once(lab):
    caches = lab.caches(layers=1)
    table = lab.table({**caches, "layers.1": caches["layers.0"]})
    assert table.layers == ["layers.0"]
    assert [(p.layer, p.index, p.name) for p in table.planes] == [(0, 0, "k"), (0, 1, "v")]


def test_no_cache_is_an_error(lab):
    with pytest.raises(ConfigError, match="no KV cache"):
        lab.table({})


@pytest.mark.parametrize(
    "change",
    [{"layer": 2}, {"plane": 2}, {"heads": 1}, {"heads": 3}, {"first_head": 1}, {"pages": 0}],
    ids=str,
)
def test_keys_of_other_models_are_refused(table, change):
    key = PieceKey(0, 0, 0, 1, 0, 2)
    table.find(key)
    with pytest.raises(ProtocolError):
        table.find(key._replace(**change))


def test_limits_hold_every_codec_and_no_more_than_the_model(lab, table):
    codecs = [table.codec(name) for name in servable_codecs()]
    limits = TransferLimits(table, codecs, 700)
    key = PieceKey(0, 0, 0, 3, 0, 2)
    plane = table.find(key)
    values = torch.full((700, 2, 32), torch.nan)
    for codec in codecs:
        for source in (values, lab.laplacian(700, 2, 32, torch.float32)):
            coded = codec.encode(source, plane.spec)
            assert coded.anchor.numel() <= limits.max_bytes(Kind.ANCHOR, key)
            assert coded.residual.numel() <= limits.max_bytes(Kind.RESIDUAL, key)
    assert limits.max_bytes(Kind.ANCHOR, key) < 2 * values.nbytes
    with pytest.raises(ProtocolError, match="longest prompt"):
        limits.max_bytes(Kind.ANCHOR, key._replace(first_page=1))
    with pytest.raises(ProtocolError):
        limits.max_bytes(Kind.ANCHOR, key._replace(layer=9))


def test_codecs_are_made_once_with_the_engines_policy(lab):
    table = lab.table(lab.caches(), sinks=7, center="mean")
    assert table.codec("lynx") is table.codec("lynx")
    assert table.codec("lynx").spec == replace(table.codec_spec, sinks=7, center="mean")
    with pytest.raises(ConfigError):
        table.codec("zip")
