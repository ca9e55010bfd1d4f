"""The portable tier put together: its forms of the ops, and the form weights stay resident in."""

from ninfer.formats import GroupedMatrix
from ninfer.ops.conv.portable import causal_conv_silu
from ninfer.ops.delta_net.portable import delta_net
from ninfer.ops.dispatch import register, register_residence
from ninfer.ops.embedding.portable import embed
from ninfer.ops.gdn.portable import gated_delta_rule, gdn_gating
from ninfer.ops.linear.fragment_order import groups_of, to_fragments
from ninfer.ops.linear.portable import linear, linear_add, linear_swiglu
from ninfer.ops.tensors import StoredWeight, Weight


def resident(weight: StoredWeight, paired: bool) -> Weight:
    """A grouped weight in fragment order with whole rows as slices; others as they are."""
    if isinstance(weight, GroupedMatrix):
        return to_fragments(weight, max(groups_of(weight.shape[1]), 1), paired=paired)
    return weight


register("portable", linear, linear_add, linear_swiglu, embed)
register("portable", causal_conv_silu, gdn_gating, gated_delta_rule, delta_net)
register_residence("portable", resident)
