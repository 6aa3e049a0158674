// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

namespace quest::cpu {

/// Whether the AVX-512 kernels may use AVX512-VNNI: the processor has it, and no test forbade it.
bool uses_vnni();
/// For tests: false keeps VNNI out until it is called with true again.
void allow_vnni(bool allowed);

}  // namespace quest::cpu
