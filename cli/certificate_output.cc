// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "certificate_output.h"

#include <cstdio>

namespace quest::cli {
namespace {

double share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

Json certificate_fields(const Certificate& wanted, const CertificateCounters& counters) {
  if (!wanted.wanted()) return nullptr;
  const bool mass = wanted.kind == CertificateKind::kMass;
  const auto rows = static_cast<double>(counters.lists);
  return {{"kind", mass ? "mass" : "top-r"},
          {"requested", mass ? Json(wanted.epsilon) : Json(wanted.r)},
          {"rows", counters.lists},
          {"fallback_share", ratio_or_null(static_cast<double>(counters.fallbacks), rows)},
          {"pages_mean", ratio_or_null(static_cast<double>(counters.pages), rows)},
          {"pages_p95", counters.pages_p95()},
          {"pages_max", counters.pages_max},
          {"pages_share", ratio_or_null(static_cast<double>(counters.pages),
                                        static_cast<double>(counters.pages_seen))},
          {"epsilon_mean", mass ? ratio_or_null(counters.epsilon_sum, rows) : Json(nullptr)},
          {"epsilon_max", mass ? Json(counters.epsilon_max) : Json(nullptr)}};
}

std::string certificate_line(const Certificate& wanted, const CertificateCounters& counters) {
  if (!wanted.wanted()) return "";
  const std::string name = to_string(wanted);
  if (counters.lists == 0) return name + ": no row had pages to leave out";
  char line[256];
  std::snprintf(line, sizeof line,
                "%s: %lld rows certified with %.1f %% of their pages (mean %.1f, P95 %lld, max "
                "%lld), %.1f %% of the rows read everything",
                name.c_str(), static_cast<long long>(counters.lists),
                100 * share(counters.pages, counters.pages_seen),
                share(counters.pages, counters.lists), static_cast<long long>(counters.pages_p95()),
                static_cast<long long>(counters.pages_max),
                100 * share(counters.fallbacks, counters.lists));
  std::string text = line;
  if (wanted.kind == CertificateKind::kMass) {
    std::snprintf(line, sizeof line, ", mass left out at most %.3g", counters.epsilon_max);
    text += line;
  }
  return text;
}

Json pack_certificates(const CertificateCounters& counters) {
  Json histogram = Json::array();
  const auto& counts = counters.histogram.counts();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] != 0) histogram.push_back({i, counts[i]});
  }
  return {{"pages",
           {counters.lists, counters.fallbacks, counters.pages, counters.pages_seen,
            counters.pages_max}},
          {"epsilon", {counters.epsilon_sum, counters.epsilon_max}},
          {"histogram", histogram}};
}

CertificateCounters unpack_certificates(const Json& json) {
  CertificateCounters counters;
  const auto pages = [&json](std::size_t i) { return json.at("pages").at(i).get<std::int64_t>(); };
  counters.lists = pages(0);
  counters.fallbacks = pages(1);
  counters.pages = pages(2);
  counters.pages_seen = pages(3);
  counters.pages_max = pages(4);
  counters.epsilon_sum = json.at("epsilon").at(0).get<double>();
  counters.epsilon_max = json.at("epsilon").at(1).get<double>();
  for (const Json& entry : json.at("histogram")) {
    const auto bucket = entry.at(0).get<std::size_t>();
    if (bucket >= PageHistogram::kBuckets) continue;
    counters.histogram.set_count(bucket, entry.at(1).get<std::int64_t>());
  }
  return counters;
}

}  // namespace quest::cli
