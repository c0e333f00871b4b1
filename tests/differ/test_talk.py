"""How long a raw connection waits for what a server has yet to say."""

import socket
import threading

from tests.differ.talk import QUIET_S, Talk

PONG = b"PONG\r\n"
LATE = b"MSG _I.r 1 2\r\nok\r\n"


def test_an_answer_is_waited_for_that_comes_long_after_the_pong() -> None:
    """What is made is answered when it is on the disk: more than a moment later."""
    asked = threading.Event()

    def serve(listener: socket.socket) -> None:
        conn, _ = listener.accept()
        with conn:
            conn.sendall(PONG)
            asked.wait(10)
            conn.sendall(LATE)
            conn.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,))
        server.start()
        talk = Talk(listener.getsockname()[1])
        assert talk.until_pong(1, 10)
        talk.until_quiet()
        threading.Timer(3 * QUIET_S, asked.set).start()
        talk.until_messages(1, 10)
        assert [frame.verb for frame in talk.take()] == ["PONG", "MSG"]
        talk.close()
        server.join()
