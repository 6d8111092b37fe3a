package content

import "github.com/headstart-mesh/headstart/e2e/functions/mjpeg"

// Split cuts a video into n parts of whole frames, about as long as each other, or fewer if
// it has fewer frames. What lies between frames is left out.
func Split(video []byte, n int) [][]byte {
	if n < 1 {
		return nil
	}
	share := (len(video) + n - 1) / n
	var parts [][]byte
	part := make([]byte, 0, share)
	for frame := range mjpeg.Frames(video) {
		part = append(part, frame...)
		if len(part) >= share && len(parts) < n-1 {
			parts, part = append(parts, part), make([]byte, 0, share)
		}
	}
	if len(part) > 0 {
		parts = append(parts, part)
	}
	return parts
}
