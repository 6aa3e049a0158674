// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

namespace quest::cpu {

/// Whether the AVX-512 kernels may use AVX512-VNNI: the processor has it, and no test forbade it.
/// q8_0 keys give the same bits with and without; scores of q4 summaries do not.
bool uses_vnni();
/// For tests: false keeps VNNI out until it is called with true again.
void allow_vnni(bool allowed);

}  // namespace quest::cpu
