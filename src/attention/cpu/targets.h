// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

// Instruction sets that the kernels are compiled for: include before any Highway header, and in
// every file that lists targets. Left out are SSSE3 and SSE4 (no hardware f16; such machines run
// the portable baseline) and the targets whose vector length is unknown at compile time, because
// the register blocks are arrays of vectors.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
