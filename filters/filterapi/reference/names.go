package reference

import (
	"fmt"
	"strings"
)

// Names are the names that buckets of one kind may have. Go checks them by Problem; CEL and the
// schema of the chart's values check them by the regular expressions Pattern and Refused.
type Names struct {
	// Like is an example, as "write it like ..." goes on.
	Like string
	// Shortest and Longest bound a name, in bytes.
	Shortest, Longest int
	// inside are the characters of a name, and ends those that it begins and ends with: classes
	// of a regular expression. words are the characters in words.
	inside, ends, words string
	// singleDots refuses two dots in a row, and noAddress what looks like an IP address.
	singleDots, noAddress bool
	// port allows a port after the name.
	port bool
	// prefixes and suffixes are reserved.
	prefixes, suffixes []string
}

// portPattern matches 1 to 65535.
const portPattern = `([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])`

// Problem completes "it ..." for what is not one of the names; empty for one that is.
func (n Names) Problem(name string) string {
	port, hasPort := "", false
	if n.port {
		name, port, hasPort = strings.Cut(name, ":")
	}
	switch {
	case len(name) < n.Shortest || len(name) > n.Longest:
		return fmt.Sprintf("must be %d to %d characters long", n.Shortest, n.Longest)
	case !consists(name, n.inside):
		return "may only hold " + n.words
	case !in(n.ends, name[0]) || !in(n.ends, name[len(name)-1]):
		return "must begin and end with a letter or digit"
	case hasPort && !isPort(port):
		return "must have a port of 1 to 65535, or none"
	case n.singleDots && strings.Contains(name, ".."):
		return "must not hold two dots in a row"
	case n.noAddress && strings.Count(name, ".") == 3 && consists(name, "0-9."):
		return "must not look like an IP address"
	}
	for _, p := range n.prefixes {
		if strings.HasPrefix(name, p) {
			return "must not begin with " + p + ", which is reserved"
		}
	}
	for _, s := range n.suffixes {
		if strings.HasSuffix(name, s) {
			return "must not end with " + s + ", which is reserved"
		}
	}
	return ""
}

// Pattern is a regular expression (RE2, and ECMA 262) that a name matches as a whole. A name that
// matches Refused, too, is none.
func (n Names) Pattern() string {
	inner := fmt.Sprintf("[%s]{%d,%d}[%s]", n.inside, max(n.Shortest-2, 0), n.Longest-2, n.ends)
	if n.Shortest == 1 {
		inner = "(" + inner + ")?"
	}
	pattern := "[" + n.ends + "]" + inner
	if n.port {
		pattern += "(:" + portPattern + ")?"
	}
	return pattern
}

// Refused is a regular expression of the names that match Pattern and still are none; empty if
// there are none.
func (n Names) Refused() string {
	var refused []string
	literal := strings.NewReplacer(".", "[.]")
	if n.singleDots {
		refused = append(refused, ".*[.][.].*")
	}
	if n.noAddress {
		refused = append(refused, "[0-9]+([.][0-9]+){3}")
	}
	for _, p := range n.prefixes {
		refused = append(refused, literal.Replace(p)+".*")
	}
	for _, s := range n.suffixes {
		refused = append(refused, ".*"+literal.Replace(s))
	}
	return strings.Join(refused, "|")
}

// consists says whether all of s is of a class of characters.
func consists(s, class string) bool {
	for i := range len(s) {
		if !in(class, s[i]) {
			return false
		}
	}
	return true
}

// in says whether c is of a class as regular expressions have it between brackets: characters
// and ranges, with nothing escaped.
func in(class string, c byte) bool {
	for i := 0; i < len(class); i++ {
		if i+2 < len(class) && class[i+1] == '-' {
			if class[i] <= c && c <= class[i+2] {
				return true
			}
			i += 2
		} else if class[i] == c {
			return true
		}
	}
	return false
}

func isPort(s string) bool {
	const digits = len("65535")
	if s == "" || len(s) > digits || s[0] == '0' || !consists(s, "0-9") {
		return false
	}
	return len(s) < digits || s <= "65535"
}
