package field

import "regexp"

// LabelForm matches a DNS label (RFC 1123, section 2.1) in lower case, which is also what
// Kubernetes takes for a name.
const LabelForm = `^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`

var label = regexp.MustCompile(LabelForm)

// LabelFix says what IsLabel accepts.
const LabelFix = "use 1 to 63 of a-z, 0-9 and -, starting and ending with a letter or digit"

// IsLabel reports whether s is a DNS label in lower case.
func IsLabel(s string) bool { return label.MatchString(s) }
