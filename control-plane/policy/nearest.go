package policy

import "strings"

// maxEdits is how many letters off a key may be and still be a typo of another one, and
// lettersPerEdit how many it needs for each of them: input-size is no typo of input-limit,
// scale-to-zerro is one of scale-to-zero, and tty none of env.
const (
	maxEdits       = 3
	lettersPerEdit = 4
)

// Nearest returns the candidate that key most likely misspells, if one is near.
func Nearest(key string, candidates []string) (string, bool) {
	best, edits := "", min(maxEdits, (len(key)+lettersPerEdit-1)/lettersPerEdit)+1
	for _, c := range candidates {
		// A difference in length is that many edits; looking at it first also bounds
		// the work on a key of any length.
		if max(len(key)-len(c), len(c)-len(key)) >= edits {
			continue
		}
		if n := distance(strings.ToLower(key), strings.ToLower(c)); n < edits {
			best, edits = c, n
		}
	}
	return best, best != ""
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
