// Files that save later runs work, in the user's cache directory: what cannot be read or written there is done again.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace user_cache {

// FNV-1a, from two starts.
inline std::string hash(const std::string& text) {
  uint64_t sums[2] = {0xcbf29ce484222325, 0x6c62272e07bb0142};
  for (unsigned char byte : text)
    for (auto& sum : sums) sum = (sum ^ byte) * 0x100000001b3;
  char digits[33];
  snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(sums[0]),
           static_cast<unsigned long long>(sums[1]));
  return digits;
}

// The file for what is called so, in a folder that is there if it can be; no path where there is no cache directory.
inline std::filesystem::path file(const std::string& what) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  std::filesystem::path base;
  if (cache && *cache) {
    base = cache;
  } else if (home && *home) {
    base = std::filesystem::path(home) / ".cache";
  } else {
    return {};
  }
  std::error_code ignored;
  std::filesystem::create_directories(base / "myxtts" / "kernels", ignored);
  return base / "myxtts" / "kernels" / hash(what);
}

}  // namespace user_cache
