"""Device code of sampling. A token of each row is drawn in five launches and without a sort.

`prepare` applies the rules of a row and finds its best logit. `count_bins` adds up how many logits
and how much weight lie in each of 2048 bins by value, and picks the few bins in which a cut or the
draw can fall. `gather` collects their logits. `rank` gives each of those its place and running
weight by comparing all with all inside a bin. `decide` cuts and draws.

Weights are whole numbers of 2^-44, so sums, those of atomic additions too, have one result in any
order, and no row sees another. Against float64 weights that moves a cut or a border between two
tokens by at most 2^-26 of the row's weight: V roundings of 2^-45 each, V <= 2^18, the best weight
being 1. Random numbers lie on a grid of 2^-24.
"""
