package admission

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/control-plane/policy/quantity"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
)

func namespaces(text string, a policy.Annotation) []rule {
	names := text + ".split(',')"
	return []rule{
		{fmt.Sprintf("%s.size() > %d", names, policy.MaxCallers), policy.TooManyNamespaces, policy.TooManyNamespacesFix},
		{
			"!" + names + ".all(n, n.matches(" + raw(field.LabelForm) + "))", "is not a list of namespaces",
			"write it like " + a.Example,
		},
	}
}

// units are those of time.ParseDuration.
var units = []struct {
	pattern string
	unit    time.Duration
}{
	{"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}, {"(us|µs|μs)", time.Microsecond}, {"ns", time.Nanosecond},
}

// duration counts on CEL's duration() being time.ParseDuration, and calls it only with
// what cannot fail: a failure would be no answer.
func duration(text string, a policy.Annotation) []rule {
	const number = `([0-9]+(\.[0-9]*)?|\.[0-9]+)`
	var each, small []string
	for _, u := range units {
		each = append(each, u.pattern)
		// More digits than the bound has make it out of range, or of what fits.
		digits := len(strconv.FormatInt(int64(a.Longest/u.unit), 10))
		small = append(small, fmt.Sprintf(`(0*[0-9]{1,%d}(\.[0-9]*)?|\.[0-9]+)%s`, digits, u.pattern))
	}
	wellFormed := `^[-+]?(0|(` + number + `(` + strings.Join(each, "|") + `))+)$`
	bounded := `^\+?(0|(` + strings.Join(small, "|") + `)+)$`
	// The shorter size comes first: it counts code points and costs nothing.
	tooLong := fmt.Sprintf("%[1]s.size() > %[2]d || bytes(%[1]s).size() > %[2]d", text, policy.MaxDuration)
	return []rule{
		{tooLong + " || " + not(text, wellFormed), "is not a duration", "write it like 90s or 5m"},
		{fmt.Sprintf("%s || duration(%[2]s) < duration('%[3]s') || duration(%[2]s) > duration('%[4]s')", not(text, bounded), text, a.Shortest, a.Longest),
			"is out of range", "use " + policy.Span(a.Shortest) + " to " + policy.Span(a.Longest)},
	}
}

// amount checks a quantity as package quantity does, by the same library of Kubernetes. int() is
// called only with what fits.
func amount(text string, a policy.Annotation) []rule {
	fix, limit, number := "write it like "+a.Example, quantity.Format(a.Largest), "quantity("+text+")"
	nearest := "quantity(string(int(" + number + ".asApproximateFloat() + 0.5)))"
	return []rule{
		{
			fmt.Sprintf("%s.size() > %d || %s", text, quantity.MaxLength, not(text, quantity.Syntax)),
			"is not a quantity", fix,
		},
		{number + ".isGreaterThan(quantity('" + limit + "'))", "is more than " + limit, "use at most " + limit},
		{number + ".compareTo(" + nearest + ") != 0", "is not a whole number of bytes", fix},
		{number + ".isLessThan(quantity('1'))", "is no room for any input", "remove the annotation or " + fix},
	}
}

// count calls int() only with what it takes.
func count(text string, a policy.Annotation) []rule {
	return []rule{{fmt.Sprintf("%s || int(%s) > %d", not(text, policy.CountForm.String()), text, a.Largest),
		fmt.Sprintf("is not a number from 1 to %d", a.Largest), "write it like " + a.Example}}
}

// not is the CEL condition that a value does not match.
func not(text, expr string) string { return "!" + text + ".matches(" + raw(expr) + ")" }
