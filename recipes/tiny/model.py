"""The demo models whole: decoder, MTP layer, vision tower; the state dict is a checkpoint."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ninfer.models.config import model_config_from_fields
from ninfer.models.qwen3_6 import recipe_for
from recipes.tiny.batch import Batch, Slices
from recipes.tiny.layers import (
    Attention,
    GatedDeltaNet,
    Matrix,
    Mlp,
    Places,
    SparseMoe,
    Weight,
    norm,
    rms_norm,
)
from recipes.tiny.quantised import Rows, imitate

# MTP is stored as W8 whatever the decoder has.
_MTP_FORMAT = "W8G32_F16S"


def formats_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Stored format of each kind of matrix, from the recipe that `ninfer convert` will follow."""
    text = {**config["text_config"], "addressable_vocab_size": config["text_config"]["vocab_size"]}
    recipe = recipe_for(
        model_config_from_fields({"text_config": text, "mtp": True}), "groupwise-int"
    )
    attention = {part: p.format for p in recipe.attention for part in p.parts}
    gdn = {f"gdn_{part}": p.format for p in recipe.gdn for part in p.parts}
    return {
        **attention,
        **gdn,
        "embedding": recipe.embedding,
        "head": recipe.head,
        "attention_output": recipe.attention_output,
        "gdn_output": recipe.gdn_output,
        "mlp_gate_up": recipe.mlp_gate_up,
        "mlp_down": recipe.mlp_down,
        "routed_gate_up": recipe.routed_gate_up,
        "routed_down": recipe.routed_down,
        "shared_gate_up": _MTP_FORMAT,
        "shared_down": _MTP_FORMAT,
    }


class Layer(nn.Module):
    """One decoder layer: mixer and feed-forward, each behind a norm and added to the stream."""

    def __init__(
        self, text: Mapping[str, Any], formats: Mapping[str, str], *, attention: bool
    ) -> None:
        super().__init__()
        hidden = text["hidden_size"]
        self.input_layernorm, self.post_attention_layernorm = norm(hidden), norm(hidden)
        if attention:
            self.self_attn = Attention(text, formats)
        else:
            self.linear_attn = GatedDeltaNet(text, formats)
        self.is_attention = attention
        self.mlp = (
            SparseMoe(text, formats)
            if "num_experts" in text
            else Mlp(hidden, text["intermediate_size"], formats, "mlp")
        )

    def forward(self, x: Tensor, places: Places, dtype: torch.dtype) -> Tensor:
        """The residual stream x [B, T, hidden] in float32, `dtype` inside."""
        h = rms_norm(x, self.input_layernorm.weight).to(dtype)
        x = x + (self.self_attn if self.is_attention else self.linear_attn)(h, places)
        return x + self.mlp(rms_norm(x, self.post_attention_layernorm.weight).to(dtype))


class Decoder(nn.Module):
    """Embedding, layers and final norm."""

    def __init__(self, text: Mapping[str, Any], formats: Mapping[str, str]) -> None:
        super().__init__()
        rows, hidden = text["vocab_size"], text["hidden_size"]
        self.embed_tokens = Matrix(rows, hidden, [Rows(rows, formats["embedding"])])
        nn.init.normal_(self.embed_tokens.weight, std=0.02 * 5)
        interval = text["full_attention_interval"]
        self.layers = nn.ModuleList(
            Layer(text, formats, attention=(i + 1) % interval == 0)
            for i in range(text["num_hidden_layers"])
        )
        self.norm = norm(hidden)


class Mtp(nn.Module):
    """The draft layer: it joins a hidden state with the embedding of the token that follows."""

    def __init__(self, text: Mapping[str, Any]) -> None:
        super().__init__()
        hidden = text["hidden_size"]
        formats = dict.fromkeys(formats_of({"text_config": text}), _MTP_FORMAT)
        self.fc = Matrix(hidden, 2 * hidden, [Rows(hidden, _MTP_FORMAT)])
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden = norm(hidden), norm(hidden)
        self.layers = nn.ModuleList([Layer(text, formats, attention=True)])
        self.norm = norm(hidden)

    def forward(self, embedded: Tensor, hidden: Tensor, places: Places) -> Tensor:
        """Hidden states [B, T, hidden] after the final norm; both inputs are [B, T, hidden]."""
        parts = (
            rms_norm(embedded, self.pre_fc_norm_embedding.weight),
            rms_norm(hidden, self.pre_fc_norm_hidden.weight),
        )
        x = self.fc(torch.cat(parts, dim=-1).to(hidden.dtype)).float()
        x = self.layers[0](x, places, hidden.dtype)
        return rms_norm(x, self.norm.weight).to(hidden.dtype)


class _VisionMixer(nn.Module):
    qkv: "Affine"
    proj: "Affine"


class _Pair(nn.Module):
    linear_fc1: "Affine"
    linear_fc2: "Affine"


class _Merger(_Pair):
    norm: nn.LayerNorm


class _PatchEmbedding(nn.Module):
    proj: nn.Conv3d  # holds the parameters; the product is a matrix product


class VisionBlock(nn.Module):
    """Bidirectional attention and MLP of the vision tower, with biases and layer norms."""

    def __init__(self, vision: Mapping[str, Any]) -> None:
        super().__init__()
        width, mlp = vision["hidden_size"], vision["intermediate_size"]
        self.heads = vision["num_heads"]
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attn, self.mlp = _VisionMixer(), _Pair()
        self.attn.qkv = Affine(3 * width, width, "Q4G64_F16S")
        self.attn.proj = Affine(width, width, "Q5G64_F16S")
        self.mlp.linear_fc1 = Affine(mlp, width, "Q4G64_F16S")
        self.mlp.linear_fc2 = Affine(width, mlp, "Q5G64_F16S")

    def forward(self, x: Tensor, turn: Sequence[Tensor], mask: Tensor) -> Tensor:
        """x [N, P, width] in float32; `mask` [N, 1, 1, P] is False at padding."""
        dtype = turn[0].dtype
        qkv = self.attn.qkv(self.norm1(x).to(dtype)).unflatten(-1, (3, self.heads, -1))
        query, key, value = qkv.transpose(1, 3).unbind(2)  # [N, heads, P, dim]
        query, key = (_rotate_2d(part, *turn) for part in (query, key))
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + self.attn.proj(mixed.transpose(1, 2).flatten(2))
        inner = self.mlp.linear_fc1(self.norm2(x).to(dtype))
        return x + self.mlp.linear_fc2(functional.gelu(inner, approximate="tanh"))


def _rotate_2d(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


class Affine(Matrix):
    """A matrix with a bias."""

    def __init__(self, out: int, inner: int, format: str) -> None:
        super().__init__(out, inner, [Rows(out, format)])
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x: Tensor) -> Tensor:
        """x [..., columns] times the transposed weight, plus the bias."""
        return super().forward(x) + self.bias.to(x.dtype)


class VisionTower(nn.Module):
    """Patches to rows of text width."""

    def __init__(self, vision: Mapping[str, Any]) -> None:
        super().__init__()
        width, patch = vision["hidden_size"], vision["patch_size"]
        self.side = round(vision["num_position_embeddings"] ** 0.5)
        self.quarter = width // vision["num_heads"] // 4
        self.patch_embed = _PatchEmbedding()
        self.patch_embed.proj = nn.Conv3d(3, width, (vision["temporal_patch_size"], patch, patch))
        self.imitating = False
        table = torch.empty(vision["num_position_embeddings"], width).normal_(std=0.02)
        self.pos_embed = Weight(table)
        self.blocks = nn.ModuleList(VisionBlock(vision) for _ in range(vision["depth"]))
        merged = width * vision["spatial_merge_size"] ** 2
        self.merger = _Merger()
        self.merger.norm = nn.LayerNorm(width, eps=1e-6)
        self.merger.linear_fc1 = Affine(merged, merged, "W8G32_F16S")
        self.merger.linear_fc2 = Affine(vision["out_hidden_size"], merged, "W8G32_F16S")

    def forward(self, slices: Slices, dtype: torch.dtype) -> Tensor:
        """Rows [M, output] of the merged patches of all slices, padding left out."""
        pixels = (slices.patches.to(torch.float32) / 127.5 - 1).to(dtype)  # [N, P, row]
        bias = self.patch_embed.proj.bias
        assert bias is not None
        x = functional.linear(pixels, self._patch_matrix().to(dtype), bias.to(dtype))
        # A product: gradients of an index that names one row thousands of times take far longer.
        table = self.pos_embed.weight
        shares = torch.zeros(*x.shape[:2], len(table), device=x.device)
        shares.scatter_add_(2, slices.corners, slices.shares)
        x = x.float() + shares @ table
        exponent = torch.arange(self.quarter, device=x.device) / self.quarter
        angle = (slices.cells.unsqueeze(-1) * 1e4**-exponent).flatten(2).unsqueeze(1)
        turn = (angle.cos().to(dtype), angle.sin().to(dtype))  # [N, 1, P, dim / 2]
        mask = slices.valid[:, None, None, :]
        for block in self.blocks:
            x = block(x, turn, mask)
        merge = self.merger.linear_fc1.weight.shape[1] // x.shape[-1]
        rows = self.merger.norm(x).to(dtype)[slices.valid].view(-1, merge * x.shape[-1])
        return self.merger.linear_fc2(functional.gelu(self.merger.linear_fc1(rows)))

    def _patch_matrix(self) -> Tensor:
        """Weight [width, row] of the patch embedding, or what its stored form would give back."""
        weight = self.patch_embed.proj.weight.flatten(1)
        return imitate(weight, [Rows(len(weight), "Q6G64_F16S")]) if self.imitating else weight


class _Parts(nn.Module):
    language_model: Decoder
    visual: VisionTower


class DemoModel(nn.Module):
    """A whole demo checkpoint. Its state dict has the names of the Hugging Face format."""

    def __init__(self, config: Mapping[str, Any], dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        text, formats = config["text_config"], formats_of(config)
        self.dtype = dtype
        self.rotary = int(text["head_dim"] * text["rope_parameters"]["partial_rotary_factor"])
        self.theta = text["rope_parameters"]["rope_theta"]
        self.model = _Parts()
        self.model.language_model = Decoder(text, formats)
        if "vision_config" in config:
            self.model.visual = VisionTower(config["vision_config"])
        self.mtp = Mtp(text)
        rows = text["vocab_size"]
        self.lm_head = Matrix(rows, text["hidden_size"], [Rows(rows, formats["head"])])

    def imitate_storage(self, on: bool) -> None:
        """Compute with the values that the artifact will hold, or with the plain weights again."""
        for module in self.modules():
            if isinstance(module, Matrix | SparseMoe | VisionTower):
                module.imitating = on

    def tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine [B, T, pairs] of positions [3, B, T]; pair i turns by axis i mod 3."""
        pairs = torch.arange(self.rotary // 2, device=positions.device)
        frequency = self.theta ** (-2.0 * pairs / self.rotary)
        angle = positions.float()[pairs % 3].permute(1, 2, 0) * frequency
        return angle.cos(), angle.sin()

    def embed(self, batch: Batch) -> Tensor:
        """Token embeddings [B, T, hidden] float32, with the rows of media in their places."""
        rows = functional.embedding(batch.ids, self.model.language_model.embed_tokens.value())
        if batch.slices is not None:
            seen = self.model.visual(batch.slices, self.dtype).float()
            flat = rows.flatten(0, 1).index_copy(0, batch.slices.tokens, seen)
            rows = flat.view_as(rows)
        return rows

    def hidden(
        self, embedded: Tensor, batch: Batch, taps: Sequence[int] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        """Final-normed states [B, T, hidden], and the stream after the layers `taps`."""
        places = Places(*self.tables(batch.positions), batch.documents)
        x, kept = embedded, []
        decoder = self.model.language_model
        for index, layer in enumerate(decoder.layers):
            x = layer(x, places, self.dtype)
            if index in taps:
                kept.append(x)
        return rms_norm(x, decoder.norm.weight).to(self.dtype), kept

    def drafts(self, embedded: Tensor, hidden: Tensor, batch: Batch, depth: int) -> list[Tensor]:
        """MTP states of `depth` steps; step s at index t drafts the token t + 2 + s."""
        cosine, sine = self.tables(batch.positions)
        out = []
        for step in range(depth):
            shifted = embedded.roll(-1 - step, dims=1)
            turned = (cosine.roll(-step, dims=1), sine.roll(-step, dims=1))
            hidden = self.mtp(shifted, hidden, Places(*turned, batch.documents))
            out.append(hidden)
        return out
