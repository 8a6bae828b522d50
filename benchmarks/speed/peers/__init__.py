"""The peers, one file each; a file imports its peer at once, so that importing it tells whether the peer is there."""
