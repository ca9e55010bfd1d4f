// Where the keys of a sequence are cut: SHORTS splits of SHORT positions, behind them splits of LONG.
// Cuts lie at fixed positions, so the order of a row's sums knows neither its company nor its length.
#pragma once
#include "machine.cuh"

constexpr int DIM = 256;  // columns of a head
constexpr int PAGE = 64;  // keys of a page
constexpr int SHORT_KEYS = SHORTS * SHORT;
static_assert(SHORT % PAGE == 0 && LONG % PAGE == 0 && LONG <= 32 * PAGE && SHORT <= LONG, "splits");

INLINE int split_of(int key) {
  return key < SHORT_KEYS ? key / SHORT : SHORTS + (key - SHORT_KEYS) / LONG;
}
INLINE int first_key(int split) {
  return split <= SHORTS ? split * SHORT : SHORT_KEYS + (split - SHORTS) * LONG;
}
