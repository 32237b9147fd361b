//! What is written is read back; what is not valid is an error.
