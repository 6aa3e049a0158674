// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/batch.h"

#include <string>

#include "quest/error.h"

namespace quest {

namespace {

[[noreturn]] void refuse(const std::string& field, const std::string& fault) {
  throw InvalidArgument("batch: " + field + " " + fault);
}

std::string element(const char* field, std::size_t index) {
  return std::string(field) + "[" + std::to_string(index) + "]";
}

void check_size(const char* field, std::size_t size, std::size_t expected) {
  if (size == expected) return;
  refuse(field, "has " + std::to_string(size) + " entries instead of " + std::to_string(expected));
}

void check_indptr(const char* field, const std::vector<std::int32_t>& indptr,
                  std::size_t requests) {
  check_size(field, indptr.size(), requests + 1);
  if (indptr[0] != 0) refuse(field, "starts at " + std::to_string(indptr[0]) + " instead of 0");
  for (std::size_t i = 1; i < indptr.size(); ++i) {
    if (indptr[i] < indptr[i - 1]) {
      refuse(element(field, i),
             "falls from " + std::to_string(indptr[i - 1]) + " to " + std::to_string(indptr[i]));
    }
  }
}

void check_request(const Batch& batch, std::int32_t r, std::int32_t page_size) {
  const auto index = static_cast<std::size_t>(r);
  const std::int32_t tail = batch.last_page_len[index];
  const std::int32_t lowest = batch.num_pages(r) == 0 ? 0 : 1;
  const std::int32_t highest = batch.num_pages(r) == 0 ? 0 : page_size;
  if (tail < lowest || tail > highest) {
    refuse(element("last_page_len", index),
           "is " + std::to_string(tail) + ", not within " + std::to_string(lowest) + ".." +
               std::to_string(highest) + " for " + std::to_string(batch.num_pages(r)) + " pages");
  }
  if (batch.num_rows(r) > batch.kv_len(r, page_size)) {
    refuse(element("q_indptr", index + 1),
           "gives request " + std::to_string(r) + " " + std::to_string(batch.num_rows(r)) +
               " rows but it has " + std::to_string(batch.kv_len(r, page_size)) + " tokens");
  }
  if (batch.sparse[index] > 1) {
    refuse(element("sparse", index), "is " + std::to_string(batch.sparse[index]) + ", not 0 or 1");
  }
}

}  // namespace

void Batch::clear() {
  q_indptr.assign(1, 0);
  page_indptr.assign(1, 0);
  page_indices.clear();
  last_page_len.clear();
  sequences.clear();
  sparse.clear();
}

void validate(const Batch& batch, const CacheShape& shape) {
  const std::size_t requests = batch.last_page_len.size();
  check_indptr("q_indptr", batch.q_indptr, requests);
  check_indptr("page_indptr", batch.page_indptr, requests);
  check_size("page_indices", batch.page_indices.size(),
             static_cast<std::size_t>(batch.page_indptr.back()));
  check_size("sequences", batch.sequences.size(), requests);
  check_size("sparse", batch.sparse.size(), requests);
  for (std::size_t i = 0; i < batch.page_indices.size(); ++i) {
    if (batch.page_indices[i] < 0 || batch.page_indices[i] >= shape.num_pages) {
      refuse(element("page_indices", i), "is " + std::to_string(batch.page_indices[i]) +
                                             ", outside a pool of " +
                                             std::to_string(shape.num_pages) + " pages");
    }
  }
  for (std::int32_t r = 0; r < batch.num_requests(); ++r) check_request(batch, r, shape.page_size);
}

}  // namespace quest
