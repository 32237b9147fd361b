//! What a page keeps and shows, without a socket.
