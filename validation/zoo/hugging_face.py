"""Networks of transformers, from configurations as small as they allow."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor, nn

from .member import CLASSES, SAMPLES, Member, Refusal, Stream, each, row

IDS = {
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "num_labels": CLASSES,
    "vocab_size": 50,
}
TEXT = dict(
    IDS,
    hidden_size=16,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=16,
)
IMAGE = {
    "num_labels": CLASSES,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 32,
    "patch_size": 8,
}
GPT = dict(IDS, n_embd=16, n_layer=3, n_head=2, n_positions=16)
BART = dict(
    IDS,
    d_model=16,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    encoder_ffn_dim=32,
    decoder_ffn_dim=32,
    max_position_embeddings=16,
    decoder_start_token_id=2,
)
STAGED = {"num_labels": CLASSES, "image_size": 32}
LAYERS = row("encoder.layer.{}", 3)


def members() -> list[Member]:
    """All of them."""
    return [*_texts(), *_images(), *_refused()]


def _sentences() -> dict[str, Tensor]:
    ids = torch.randint(5, 50, (SAMPLES, 7))
    ids[:, -1] = 2  # some read the state of this token
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _pictures(size: int = 32) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(SAMPLES, 3, size, size)}


def _made(name: str, kind: str, options: dict[str, Any]) -> nn.Module:
    config = getattr(transformers, f"{name}Config")(**options)
    model: nn.Module = getattr(transformers, f"{name}For{kind}Classification")(config)
    return model


def _text(name: str, blocks: tuple[str, ...], last: str = "", **options: Any) -> Member:
    given = options.pop("of", TEXT) | options
    return Member(
        "transformers",
        name,
        lambda: _made(name, "Sequence", given),
        _sentences,
        Stream(blocks, last),
    )


def _image(name: str, blocks: tuple[str, ...], **options: Any) -> Member:
    given = options.pop("of", IMAGE) | options
    size = given["image_size"]
    return Member(
        "transformers",
        name,
        lambda: _made(name, "Image", given),
        lambda: _pictures(size),
        Stream(blocks),
    )


def _under(name: str, blocks: tuple[str, ...] = LAYERS) -> tuple[str, ...]:
    return tuple(f"{name}.{block}" for block in blocks)


def _texts() -> list[Member]:
    encoders = {
        **{
            "Bert": "bert",
            "Roberta": "roberta",
            "XLMRoberta": "roberta",
            "Electra": "electra",
            "Deberta": "deberta",
        },
        **{
            "DebertaV2": "deberta",
            "MPNet": "mpnet",
            "MobileBert": "mobilebert",
            "FNet": "fnet",
            "ConvBert": "convbert",
        },
        **{
            "RoFormer": "roformer",
            "MegatronBert": "bert",
            "BigBird": "bert",
            "Ernie": "ernie",
            "Esm": "esm",
        },
        **{"Camembert": "roberta", "Data2VecText": "data2vec_text", "Longformer": "longformer"},
    }
    special: dict[str, dict[str, Any]] = {
        "MobileBert": {
            "embedding_size": 16,
            "intra_bottleneck_size": 16,
            "true_hidden_size": 16,
            "num_feedforward_networks": 1,
        },
        "Longformer": {"attention_window": 4},
    }
    decoders: dict[str, dict[str, Any]] = {
        "Llama": {"num_key_value_heads": 2},
        "Mistral": {"num_key_value_heads": 1},
        "Mixtral": {
            "num_key_value_heads": 2,
            "num_local_experts": 2,
            "experts_implementation": "eager",
        },
        "Qwen2": {"num_key_value_heads": 2},
        "Gemma": {"num_key_value_heads": 1, "head_dim": 8},
        "Gemma2": {"num_key_value_heads": 1, "head_dim": 8, "query_pre_attn_scalar": 8},
        **{"Phi": {}, "Phi3": {}, "Persimmon": {}, "Starcoder2": {}, "Olmo": {}, "ModernBert": {}},
    }
    hidden = row("transformer.h.{}", 3)
    return [
        *(_text(name, _under(own), **special.get(name, {})) for name, own in encoders.items()),
        *(_text(name, row("model.layers.{}", 3), **options) for name, options in decoders.items()),
        _text(
            "Albert",
            ("albert.encoder.albert_layer_groups.0.albert_layers.0",) * 3,
            embedding_size=8,
        ),
        _text(
            "DistilBert",
            row("distilbert.transformer.layer.{}", 3),
            of=dict(IDS, dim=16, n_layers=3, n_heads=2, hidden_dim=32, max_position_embeddings=16),
        ),
        _text("GPT2", hidden, of=GPT),
        _text("GPTJ", hidden, of=GPT, rotary_dim=4),
        _text("CTRL", hidden, of=GPT, dff=32),
        _text(
            "GPTNeo",
            hidden,
            attention_types=[[["global"], 3]],
            num_layers=3,
            num_heads=2,
        ),
        _text("GPTNeoX", row("gpt_neox.layers.{}", 3)),
        _text("OPT", row("model.decoder.layers.{}", 3), ffn_dim=32, word_embed_proj_dim=16),
        _text("Bloom", hidden, of=dict(IDS, hidden_size=16, n_layer=3, n_head=2)),
        _text("Falcon", hidden),
        _text("BioGpt", row("biogpt.layers.{}", 3)),
        *(
            _text(
                name,
                tuple(
                    f"transformer.{part}.{layer}"
                    for layer in range(3)
                    for part in ("attentions", "ffns")
                ),
                "sequence_summary",
                of={
                    "n_words": 50,
                    "emb_dim": 16,
                    "n_layers": 3,
                    "n_heads": 2,
                    "max_position_embeddings": 16,
                    "num_labels": CLASSES,
                },
                pad_index=0,
            )
            for name in ("XLM", "Flaubert")
        ),
    ]


def _images() -> list[Member]:
    own = {"ViT": "vit", "DeiT": "deit", "Beit": "beit", "ViTMSN": "vit", "IJepa": "ijepa"}
    encoders = {
        "Data2VecVision": "data2vec_vision",
        "Dinov2": "dinov2",
        "Dinov2WithRegisters": "dinov2_with_registers",
    }
    depths = {"depths": [1, 2, 1, 1], "hidden_sizes": [8, 16, 16, 16]}
    heads = dict(depths, num_attention_heads=[1, 1, 1, 1])
    swin = dict(STAGED, embed_dim=8, depths=[1, 2], num_heads=[1, 2], window_size=4, patch_size=4)
    skips = (1, 3, 4, 6, 7, 8, 10, 11, 13, 14)
    return [
        *(_image(name, row(f"{prefix}.layers.{{}}", 3)) for name, prefix in own.items()),
        *(_image(name, _under(prefix)) for name, prefix in encoders.items()),
        _image("Swin", each("swin.encoder.layers.{}.blocks.{}", [1, 2]), of=swin),
        _image("Swinv2", each("swinv2.encoder.layers.{}.blocks.{}", [1, 2]), of=swin),
        *(
            _image(
                name,
                each(f"{name.lower()}.encoder.stages.{{}}.layers.{{}}", [1, 2]),
                of=dict(STAGED, hidden_sizes=[8, 16], depths=[1, 2], num_stages=2),
            )
            for name in ("ConvNext", "ConvNextV2")
        ),
        _image(
            "ResNet",
            each("resnet.encoder.stages.{}.layers.{}", [1, 2]),
            of=dict(STAGED, embedding_size=8, hidden_sizes=[16, 32], depths=[1, 2]),
        ),
        _image(
            "PoolFormer",
            each("poolformer.encoder.block.{}.{}", [1, 2, 1, 1]),
            of=dict(STAGED, **depths),
        ),
        _image(
            "Segformer",
            each("segformer.stages.{}.blocks.{}", [1, 2, 1, 1]),
            of=dict(STAGED, **heads, num_encoder_blocks=4),
        ),
        _image(
            "Pvt",
            each("pvt.encoder.block.{}.{}", [1, 2, 1, 1]),
            of=dict(STAGED, **heads),
            image_size=64,
        ),
        _image(
            "PvtV2",
            each("pvt_v2.encoder.layers.{}.blocks.{}", [1, 2, 1, 1]),
            of=dict(STAGED, **heads),
            image_size=64,
        ),
        _image(
            "FocalNet",
            each("focalnet.encoder.stages.{}.layers.{}", [1, 2]),
            of=dict(
                STAGED,
                embed_dim=8,
                depths=[1, 2],
                focal_levels=[2, 2],
                focal_windows=[3, 3],
                hidden_sizes=[8, 16],
            ),
            patch_size=4,
        ),
        _image(
            "MobileNetV1",
            row("mobilenet_v1.layer.{}", 26),
            of={"num_labels": CLASSES, "image_size": 64, "depth_multiplier": 0.25},
        ),
        _image(
            "MobileNetV2",
            tuple(f"mobilenet_v2.layer.{layer}" for layer in skips),
            of={"num_labels": CLASSES, "image_size": 64},
        ),
    ]


def _refused() -> list[Member]:
    beside = Refusal(
        "the decoder reads what the encoder returns beside its own stream",
        "no single stream",
    )
    t5 = dict(
        IDS,
        d_model=16,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=2,
        d_ff=32,
        d_kv=8,
        decoder_start_token_id=0,
    )
    made = [("Bart", BART), ("MBart", BART), ("MT5", t5)]
    return [
        Member(
            "transformers",
            name,
            lambda name=name, own=own: _made(name, "Sequence", own),
            _sentences,
            beside,
        )
        for name, own in made
    ]
