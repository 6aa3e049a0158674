// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

namespace quest::cli {

/// Exit status of a program that the user stopped with Ctrl-C (128 + SIGINT).
inline constexpr int kInterruptedStatus = 130;

/// From now on the first Ctrl-C (SIGINT) only raises a flag, and blocking reads return; the second
/// one ends the program at once. Calling it again forgets an earlier Ctrl-C.
void catch_interrupts();

/// True once Ctrl-C was pressed since the last `catch_interrupts`.
bool interrupted();

}  // namespace quest::cli
