// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "gpu_check/peers.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>

#include "input.h"
#include "quest/error.h"

namespace quest::gpu_check {

namespace {

using cli::Json;

constexpr const char* kShapeFields[] = {"context", "batch", "q_heads", "kv_heads", "head_dim"};

class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {}

  [[noreturn]] void refuse(const std::string& what) const {
    std::ostringstream text;
    text << "peers '" << path_ << "': " << what << "; write it anew with scripts/gpu_peers.py";
    throw InvalidArgument(text.str());
  }

  void check(const Json& json, const std::string& device) const {
    if (!json.is_object()) refuse("not a JSON object");
    if (!json.contains("quest_peers") || json["quest_peers"] != kPeersFormat) {
      refuse("'quest_peers' is not " + std::to_string(kPeersFormat));
    }
    if (!json.contains("versions") || !json["versions"].is_object()) {
      refuse("'versions' is not an object");
    }
    for (const char* name : {"rows", "skipped"}) {
      if (!json.contains(name) || !json[name].is_array()) {
        refuse(std::string("'") + name + "' is not a list");
      }
    }
    std::size_t index = 0;
    for (const Json& row : json["rows"]) check_row(row, "row " + std::to_string(index++) + ": ");
    for (const Json& entry : json["skipped"]) check_skipped(entry);
    if (!json["rows"].empty()) check_device(json, device);
  }

 private:
  void check_device(const Json& json, const std::string& device) const {
    if (!json.contains("device") || !json["device"].is_string()) refuse("'device' is not a text");
    if (json["device"] == device) return;
    refuse("measured on '" + json["device"].get<std::string>() + "', and this is '" + device + "'");
  }

  void check_text(const Json& in, const char* name, const std::string& where) const {
    if (in.is_object() && in.contains(name) && in[name].is_string()) return;
    refuse(where + "'" + name + "' is not a text");
  }

  void check_count(const Json& in, const char* name, const std::string& where) const {
    if (in.contains(name) && in[name].is_number_integer() && in[name] > 0) return;
    refuse(where + "'" + name + "' is not a whole number above 0");
  }

  /// One shape of an engine, or all of it.
  void check_skipped(const Json& entry) const {
    for (const char* name : {"engine", "reason"}) check_text(entry, name, "skipped: ");
    if (!entry.contains("q_heads")) return;
    for (const char* name : {"context", "batch", "q_heads", "kv_heads"}) {
      check_count(entry, name, "skipped: ");
    }
  }

  void check_row(const Json& row, const std::string& where) const {
    for (const char* name : {"engine", "kv"}) check_text(row, name, where);
    for (const char* name : kShapeFields) check_count(row, name, where);
    if (!row.contains("seconds") || !row["seconds"].is_number() || !(row["seconds"] > 0)) {
      refuse(where + "'seconds' is not a number above 0");
    }
  }

  const std::string path_;
};

bool same_shape(const Json& a, const Json& b) {
  return a.at("kv") == b.at("kv") && std::all_of(std::begin(kShapeFields), std::end(kShapeFields),
                                                 [&](const char* f) { return a.at(f) == b.at(f); });
}

}  // namespace

Json read_peers(const std::string& path, const std::string& device) {
  Json json = Json::parse(cli::read_input(path), nullptr, false);
  Reader(path).check(json, device);
  return json;
}

Json compare_peers(const Json& peer_rows, const Json& rows) {
  Json compared = Json::array();
  for (Json peer : peer_rows) {
    const double seconds = peer.at("seconds").get<double>();
    peer["dense_seconds"] = nullptr;
    peer["over_dense"] = nullptr;
    Json quest = Json::array();
    for (const Json& row : rows) {
      if (!same_shape(peer, row)) continue;
      const double ours = row.at("seconds").get<double>();
      if (row.at("engine") == "dense") {
        peer["dense_seconds"] = ours;
        peer["over_dense"] = seconds / ours;
      } else {
        quest.push_back(
            {{"budget", row.at("budget")}, {"seconds", ours}, {"speedup", seconds / ours}});
      }
    }
    std::stable_sort(quest.begin(), quest.end(), [](const Json& a, const Json& b) {
      return a.at("budget").get<double>() < b.at("budget").get<double>();
    });
    peer["quest"] = std::move(quest);
    compared.push_back(std::move(peer));
  }
  return compared;
}

}  // namespace quest::gpu_check
