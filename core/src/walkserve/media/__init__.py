"""Images, audio and video as clients send and receive them."""
