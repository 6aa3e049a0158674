// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

// CMake writes this header at every build, so that the commit is right without a recompilation of
// everything; a compiler run by hand gets the fallbacks.
#if __has_include("quest_build_info.h")
#include "quest_build_info.h"
#endif

#ifndef QUEST_VERSION
#define QUEST_VERSION "unknown"
#endif
#ifndef QUEST_COMMIT
#define QUEST_COMMIT "unknown"
#endif
#ifndef QUEST_COMPILER
#define QUEST_COMPILER __VERSION__
#endif
