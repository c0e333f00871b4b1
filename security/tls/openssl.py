"""OpenSSL below Python's `ssl`: for the little that it can do and `ssl` cannot.

`_ssl` is linked to the library, so its symbols are reached through that module, and an `SSLContext`
begins with its pointer to `SSL_CTX`. `unknown` tells whether both hold in this interpreter.
"""

import ctypes
import functools
import ssl
import sys
from typing import Any

# Numbers of OpenSSL's ssl.h.
_SET_MODE = 33
_NO_AUTO_CHAIN = 8

Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


@functools.cache
def unknown() -> str:
    """Why the library cannot be used in this interpreter; empty when it can."""
    if sys.implementation.name != "cpython" or sys.abiflags:
        return "the interpreter is not the one whose layout is known"
    try:
        found = library()
    except (OSError, AttributeError) as error:
        return f"the TLS library cannot be reached: {error}"
    probe = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if found.SSL_CTX_get_options(pointer(probe)) != int(probe.options):
        return "a TLS context is not laid out as expected"
    return ""


def send_no_more(context: ssl.SSLContext) -> None:
    """Have handshakes send the certificates of the chain's file alone. OpenSSL adds those that it
    trusts and that lead from it to a root. Where the library is unknown it goes on doing so."""
    if not unknown():
        library().SSL_CTX_ctrl(pointer(context), _SET_MODE, _NO_AUTO_CHAIN, None)


@functools.cache
def library() -> Any:
    """The TLS library of `_ssl`. Raises OSError or AttributeError."""
    import _ssl

    found = ctypes.CDLL(_ssl.__file__)
    for name in ("SSL_CTX_ctrl", "SSL_ctrl"):
        function = getattr(found, name)
        function.restype = ctypes.c_long
        function.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]
    found.SSL_CTX_callback_ctrl.restype = ctypes.c_long
    found.SSL_CTX_callback_ctrl.argtypes = [ctypes.c_void_p, ctypes.c_int, Callback]
    found.SSL_CTX_get_options.restype = ctypes.c_uint64
    found.SSL_CTX_get_options.argtypes = [ctypes.c_void_p]
    found.CRYPTO_malloc.restype = ctypes.c_void_p
    found.CRYPTO_malloc.argtypes = [ctypes.c_size_t, ctypes.c_char_p, ctypes.c_int]
    return found


def pointer(context: ssl.SSLContext) -> int:
    """The `SSL_CTX` of a context: the first field behind the head of every object."""
    at = id(context) + object.__basicsize__
    return ctypes.c_void_p.from_address(at).value or 0
