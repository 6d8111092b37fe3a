package body

// Small is how much is read at once of most bodies, and ChunksMost how many are read by Chunk.
const (
	Small      = small
	ChunksMost = chunksMost
)
