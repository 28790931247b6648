// Errors with streamed messages, and the checks that throw them.
#ifndef TVM_FFI_ERROR_H_
#define TVM_FFI_ERROR_H_

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

#include <exception>

namespace tvm {
namespace ffi {
// A namespace of its own: no symbol of these headers can be taken for one of libtvm_ffi's.
inline namespace slim {
namespace detail {

// Text that grows by `<<`, each value written as an output stream writes it by default.
class Message {
 public:
  Message() = default;
  Message(const char* text) { *this << text; }
  template <typename Text, typename = decltype(static_cast<const Text*>(nullptr)->length())>
  Message(const Text& text) { append(text.data(), text.length()); }
  Message(const Message& other) { append(other.text(), other.size_); }
  Message(Message&& other) noexcept : data_(other.data_), size_(other.size_) { other.data_ = nullptr; }
  Message& operator=(const Message&) = delete;
  ~Message() { free(data_); }

  const char* text() const { return data_ == nullptr ? "" : data_; }

  Message& operator<<(const char* text) { return append(text, strlen(text)); }
  Message& operator<<(char value) { return append(&value, 1); }
  Message& operator<<(signed char value) { return *this << static_cast<char>(value); }
  Message& operator<<(unsigned char value) { return *this << static_cast<char>(value); }
  Message& operator<<(bool value) { return *this << static_cast<int>(value); }
  Message& operator<<(short value) { return print("%d", static_cast<int>(value)); }
  Message& operator<<(unsigned short value) { return print("%u", static_cast<unsigned>(value)); }
  Message& operator<<(int value) { return print("%d", value); }
  Message& operator<<(unsigned value) { return print("%u", value); }
  Message& operator<<(long value) { return print("%ld", value); }
  Message& operator<<(unsigned long value) { return print("%lu", value); }
  Message& operator<<(long long value) { return print("%lld", value); }
  Message& operator<<(unsigned long long value) { return print("%llu", value); }
  Message& operator<<(float value) { return print("%g", static_cast<double>(value)); }
  Message& operator<<(double value) { return print("%g", value); }
  Message& operator<<(const void* value) { return value == nullptr ? *this << "0" : print("%p", value); }
  // Strings of the C++ library, when the source includes them: these headers do not.
  template <typename Text, typename = decltype(static_cast<const char*>(static_cast<const Text*>(nullptr)->data())),
            typename = decltype(static_cast<const Text*>(nullptr)->length())>
  Message& operator<<(const Text& text) {
    return append(text.data(), text.length());
  }

 private:
  template <typename Value>
  Message& print(const char* format, Value value) {
    char buffer[64];
    return append(buffer, snprintf(buffer, sizeof buffer, format, value));
  }

  __attribute__((noinline, cold)) Message& append(const char* text, size_t count) {
    char* grown = static_cast<char*>(realloc(data_, size_ + count + 1));
    if (grown == nullptr) abort();
    data_ = grown;
    memcpy(data_ + size_, text, count);
    size_ += count;
    data_[size_] = 0;
    return *this;
  }

  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace detail

// What a function throws to make its caller raise an error of a named kind.
class Error : public std::exception {
 public:
  Error(detail::Message kind, detail::Message message, const detail::Message& /*backtrace*/)
      : kind_(static_cast<detail::Message&&>(kind)), message_(static_cast<detail::Message&&>(message)) {}

  const char* what() const noexcept override { return message_.text(); }
  const char* kind_text() const noexcept { return kind_.text(); }

 private:
  detail::Message kind_, message_;
};

namespace detail {

// Lives until the end of the statement that streams into it, and throws then.
class ErrorBuilder {
 public:
  explicit ErrorBuilder(const char* kind) : kind_(kind) {}
  [[noreturn]] __attribute__((noinline, cold)) ~ErrorBuilder() noexcept(false) {
    throw Error(static_cast<Message&&>(kind_), static_cast<Message&&>(message_), "");
  }
  Message& stream() { return message_; }

 private:
  Message kind_, message_;
};

// The two values of a comparison that failed; false when it held.
class Comparison {
 public:
  Comparison() = default;
  template <typename X, typename Y>
  Comparison(const X& x, const Y& y) : failed_(true) {
    message_ << " (" << x << " vs. " << y << ") ";
  }
  explicit operator bool() const { return failed_; }
  const char* operator*() const { return message_.text(); }

 private:
  bool failed_ = false;
  Message message_;
};

#define TVM_FFI_SLIM_COMPARISON_(name, op)             \
  template <typename X, typename Y>                    \
  Comparison LogCheck##name(const X& x, const Y& y) {  \
    if (x op y) return Comparison();                   \
    return Comparison(x, y);                           \
  }                                                    \
  inline Comparison LogCheck##name(int x, int y) {     \
    return LogCheck##name<int, int>(x, y);             \
  }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-compare"
TVM_FFI_SLIM_COMPARISON_(_LT, <)
TVM_FFI_SLIM_COMPARISON_(_GT, >)
TVM_FFI_SLIM_COMPARISON_(_LE, <=)
TVM_FFI_SLIM_COMPARISON_(_GE, >=)
TVM_FFI_SLIM_COMPARISON_(_EQ, ==)
TVM_FFI_SLIM_COMPARISON_(_NE, !=)
#pragma GCC diagnostic pop
#undef TVM_FFI_SLIM_COMPARISON_

}  // namespace detail
}  // namespace slim
}  // namespace ffi
}  // namespace tvm

#define TVM_FFI_THROW(ErrorKind) ::tvm::ffi::detail::ErrorBuilder(#ErrorKind).stream()

#define TVM_FFI_CHECK(cond, ErrorKind)                         \
  if (__builtin_expect(static_cast<bool>(!(cond)), 0))         \
  TVM_FFI_THROW(ErrorKind) << "Check failed: (" #cond << ") is false: "

#define TVM_FFI_CHECK_BINARY_OP(name, op, x, y, ErrorKind)                           \
  if (auto __tvm_ffi_log_err = ::tvm::ffi::detail::LogCheck##name(x, y))             \
  TVM_FFI_THROW(ErrorKind) << "Check failed: " << #x " " #op " " #y << *__tvm_ffi_log_err << ": "

#define TVM_FFI_CHECK_LT(x, y, ErrorKind) TVM_FFI_CHECK_BINARY_OP(_LT, <, x, y, ErrorKind)
#define TVM_FFI_CHECK_GT(x, y, ErrorKind) TVM_FFI_CHECK_BINARY_OP(_GT, >, x, y, ErrorKind)
#define TVM_FFI_CHECK_LE(x, y, ErrorKind) TVM_FFI_CHECK_BINARY_OP(_LE, <=, x, y, ErrorKind)
#define TVM_FFI_CHECK_GE(x, y, ErrorKind) TVM_FFI_CHECK_BINARY_OP(_GE, >=, x, y, ErrorKind)
#define TVM_FFI_CHECK_EQ(x, y, ErrorKind) TVM_FFI_CHECK_BINARY_OP(_EQ, ==, x, y, ErrorKind)
#define TVM_FFI_CHECK_NE(x, y, ErrorKind) TVM_FFI_CHECK_BINARY_OP(_NE, !=, x, y, ErrorKind)
#define TVM_FFI_CHECK_NOTNULL(x, ErrorKind) \
  ((x) == nullptr ? TVM_FFI_THROW(ErrorKind) << "Check not null: " #x << ' ', (x) : (x))

#define TVM_FFI_ICHECK(x) TVM_FFI_CHECK(x, InternalError)
#define TVM_FFI_ICHECK_LT(x, y) TVM_FFI_CHECK_LT(x, y, InternalError)
#define TVM_FFI_ICHECK_GT(x, y) TVM_FFI_CHECK_GT(x, y, InternalError)
#define TVM_FFI_ICHECK_LE(x, y) TVM_FFI_CHECK_LE(x, y, InternalError)
#define TVM_FFI_ICHECK_GE(x, y) TVM_FFI_CHECK_GE(x, y, InternalError)
#define TVM_FFI_ICHECK_EQ(x, y) TVM_FFI_CHECK_EQ(x, y, InternalError)
#define TVM_FFI_ICHECK_NE(x, y) TVM_FFI_CHECK_NE(x, y, InternalError)
#define TVM_FFI_ICHECK_NOTNULL(x) TVM_FFI_CHECK_NOTNULL(x, InternalError)

#endif  // TVM_FFI_ERROR_H_
