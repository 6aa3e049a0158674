// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "cache/page_pool.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

namespace quest {
namespace {

TEST(PagePool, HandsOutTheLowestFreePage) {
  // Sizes around the 64 and 4,096 bits of the two levels.
  for (std::int32_t size : {1, 63, 64, 65, 4095, 4096, 4097, 10000}) {
    PagePool pool(size);
    for (std::int32_t page = 0; page < size; ++page) ASSERT_EQ(pool.acquire(), page) << size;
    EXPECT_EQ(pool.free_pages(), 0);
    EXPECT_THROW(pool.acquire(), std::logic_error);
    pool.release(size - 1);
    if (size > 1) {
      pool.release(size / 3);
      EXPECT_EQ(pool.acquire(), size / 3) << size;
    }
    EXPECT_EQ(pool.acquire(), size - 1) << size;
  }
}

TEST(PagePool, LastReferenceFreesThePage) {
  PagePool pool(4);
  const std::int32_t page = pool.acquire();
  pool.retain(page);
  EXPECT_EQ(pool.count(page), 2);
  pool.release(page);
  EXPECT_EQ(pool.count(page), 1);
  EXPECT_EQ(pool.free_pages(), 3);
  pool.release(page);
  EXPECT_EQ(pool.count(page), 0);
  EXPECT_EQ(pool.free_pages(), 4);
}

TEST(PagePool, RefusesToFreeOrShareAFreePage) {
  PagePool pool(4);
  EXPECT_THROW(pool.release(2), std::logic_error);
  EXPECT_THROW(pool.retain(2), std::logic_error);
  const std::int32_t page = pool.acquire();
  pool.release(page);
  EXPECT_THROW(pool.release(page), std::logic_error);
  EXPECT_EQ(pool.free_pages(), 4);
  std::set<std::int32_t> pages;
  for (int i = 0; i < 4; ++i) pages.insert(pool.acquire());
  EXPECT_EQ(pages.size(), 4U) << "a page was handed out twice";
}

}  // namespace
}  // namespace quest
