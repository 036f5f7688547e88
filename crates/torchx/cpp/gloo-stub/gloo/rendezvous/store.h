#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace gloo::rendezvous {

// The order of its virtual functions is gloo's.
class Store {
 public:
  virtual ~Store();
  virtual void set(const std::string&, const std::vector<char>&) = 0;
  virtual std::vector<char> get(const std::string&) = 0;
  virtual void wait(const std::vector<std::string>&) = 0;
  virtual void wait(const std::vector<std::string>&, const std::chrono::milliseconds&) {}
};

}  // namespace gloo::rendezvous
