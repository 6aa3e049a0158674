// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/cpu/kernels.h"

namespace quest::cpu {

// Each family of kernels is compiled in its own file for every instruction set; these choose.
using ScoreKernel = void (*)(const ScoreArgs&);
using AttendKernel = void (*)(const AttendArgs&);
using LogitsKernel = void (*)(const AttendArgs&, const PartLogits&);
using ValuesKernel = void (*)(const ValuesArgs&);
using MagnitudeKernel = void (*)(const MagnitudeArgs&);
using ProbeKernel = void (*)(const ProbeArgs&);
using PrefillKernel = void (*)(const PrefillArgs&);

/// `element`: the type of plain summaries.
ScoreKernel score_kernel(SummaryType summary, KvType element);
AttendKernel attend_kernel(KvType type);
LogitsKernel logits_kernel(KvType type);
ValuesKernel values_kernel(KvType type);
MagnitudeKernel magnitude_kernel(SummaryType summary, KvType element);
ProbeKernel probe_kernel(KvType type);
PrefillKernel prefill_kernel(KvType type);
/// By bf16 tile products; null where they may not be used or the chosen instruction set lacks them.
PrefillKernel prefill_amx_kernel(KvType type);

}  // namespace quest::cpu
