// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

// The build hands these over as compile definitions; a compiler run by hand gets the fallbacks.
#ifndef QUEST_VERSION
#define QUEST_VERSION "unknown"
#endif
#ifndef QUEST_COMMIT
#define QUEST_COMMIT "unknown"
#endif
#ifndef QUEST_COMPILER
#define QUEST_COMPILER __VERSION__
#endif
