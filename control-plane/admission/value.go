package admission

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/control-plane/policy/field"
	"github.com/headstart-mesh/headstart/control-plane/policy/quantity"
)

// store checks the name alone; whether it is granted is known when there is an input.
func store(text string) []rule {
	return []rule{{not(text, field.LabelForm), "is not the name of a store", field.LabelFix}}
}

func namespaces(text string, a policy.Annotation) []rule {
	names := text + ".split(',')"
	return []rule{
		{fmt.Sprintf("%s.size() > %d", names, policy.MaxCallers), policy.TooManyNamespaces, policy.TooManyNamespacesFix},
		{"!" + names + ".all(n, n.matches(" + raw(field.LabelForm) + "))", "is not a list of namespaces", "write it like " + a.Example},
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
	bounded := `^\+?(` + strings.Join(small, "|") + `)+$`
	// The shorter size comes first: it counts code points and costs nothing.
	tooLong := fmt.Sprintf("%[1]s.size() > %[2]d || bytes(%[1]s).size() > %[2]d", text, policy.MaxDuration)
	return []rule{
		{tooLong + " || " + not(text, wellFormed), "is not a duration", "write it like 90s or 5m"},
		{fmt.Sprintf("%s || duration(%[2]s) < duration('%[3]s') || duration(%[2]s) > duration('%[4]s')", not(text, bounded), text, a.Shortest, a.Longest),
			"is out of range", "use " + policy.Span(a.Shortest) + " to " + policy.Span(a.Longest)},
	}
}

// binary are the suffixes whose n-th is 1024 to the n.
var binary = []string{"Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}

// decimal are the other suffixes, with their powers of ten.
var decimal = []struct {
	suffix string
	power  int
}{{"", 0}, {"n", -9}, {"u", -6}, {"m", -3}, {"k", 3}, {"M", 6}, {"G", 9}, {"T", 12}, {"P", 15}, {"E", 18}}

const (
	mantissa = `([0-9]+\.?[0-9]*|\.[0-9]+)`
	exponent = `[eE][+-]?[0-9]+`
	// limb is how many digits of a fraction are held in one integer: a product with 1024
	// fits 64 bits. Two limbs hold more than MaxLength leaves for a fraction.
	limb = 15
)

// amount checks a quantity exactly as package quantity does, without its arithmetic:
// whether a decimal is a whole number of bytes is a matter of its digits. Whether one
// with a binary suffix is, comes out by multiplying the digits of its fraction with 1024.
func amount(name string, a policy.Annotation) ([]variable, []rule) {
	var suffixes []string
	for _, d := range decimal[1:] {
		suffixes = append(suffixes, d.suffix)
	}
	text, v := "variables."+name, func(s string) string { return "variables." + name + s }
	syntax := "^" + mantissa + "(|" + strings.Join(append(suffixes, binary...), "|") + "|" + exponent + ")$"
	tooLong := fmt.Sprintf("%s.size() > %d", text, quantity.MaxLength)
	far := text + ".matches(r'" + exponent + "$') && " + not(text, fmt.Sprintf(`[eE][+-]?0*([0-9]|1[0-%d])$`, quantity.MaxExponent-10))
	zeros := strings.Repeat("0", limb)
	vs := []variable{
		// Is '0' in place of what is none, so that all that follows is defined.
		{name + "Text", fmt.Sprintf("%s || %s || %s ? '0' : %s", tooLong, not(text, syntax), far, text)},
		{name + "Mantissa", fmt.Sprintf("%[1]s.endsWith('i') ? %[1]s.substring(0, %[1]s.size() - 2) : %[1]s.matches('[a-zA-Z]$') ? %[1]s.substring(0, %[1]s.size() - 1) : %[1]s", v("Text"))},
		{name + "Number", "double(" + v("Mantissa") + ") * (" + factor(v("Text")) + ")"},
		{name + "Fraction", fmt.Sprintf("%[1]s.endsWith('i') && %[2]s.contains('.') ? (%[2]s.substring(%[2]s.indexOf('.') + 1) + '%[3]s%[3]s').substring(0, %[4]d) : '%[3]s%[3]s'", v("Text"), v("Mantissa"), zeros, 2*limb)},
		{name + "Limbs", fmt.Sprintf("[int(%[1]s.substring(0, %[2]d)), int(%[1]s.substring(%[2]d))]", v("Fraction"), limb)},
	}
	before, whole := name+"Limbs", ""
	for _, suffix := range binary {
		vs = append(vs, variable{name + suffix, fmt.Sprintf("[(variables.%[1]s[0] * 1024 + variables.%[1]s[1] * 1024 / 1%[2]s) %% 1%[2]s, variables.%[1]s[1] * 1024 %% 1%[2]s]", before, zeros)})
		before = name + suffix
		whole += fmt.Sprintf("%s.endsWith('%s') ? %s == [0, 0] : ", v("Text"), suffix, v(suffix))
	}
	vs = append(vs, variable{name + "Whole", whole + v("Text") + ".matches(" + raw(wholeDecimal()) + ")"})
	fix := "write it like " + a.Example
	limit := quantity.Format(a.Largest)
	return vs, []rule{
		{tooLong + " || " + not(text, syntax), "is not a quantity", fix},
		{far, "is out of range", fix},
		{"!" + v("Whole"), "is not a whole number of bytes", fix},
		// Whole numbers this small are exact in a double, or off by far less than a half.
		{v("Number") + " < 0.5", "is no room for any input", "remove the annotation or " + fix},
		{v("Number") + " > " + strconv.FormatInt(a.Largest, 10) + ".5", "is more than " + limit, "use at most " + limit},
	}
}

// factor is the CEL of what a suffix multiplies by. double() reads an exponent itself.
func factor(text string) string {
	var b strings.Builder
	for i, s := range binary {
		fmt.Fprintf(&b, "%s.endsWith('%s') ? %s.0 : ", text, s, strconv.FormatFloat(math.Pow(1024, float64(i+1)), 'f', -1, 64))
	}
	for _, d := range decimal[1:] {
		fmt.Fprintf(&b, "%s.endsWith('%s') ? 1e%d : ", text, d.suffix, d.power)
	}
	return b.String() + "1.0"
}

// wholeDecimal matches decimals that are whole numbers: with a positive power of ten,
// the fraction has that many digits and zeros; with a negative one, the digits end in
// that many zeros.
func wholeDecimal() string {
	var forms []string
	add := func(power int, suffix string) {
		switch {
		case power > 0:
			forms = append(forms, fmt.Sprintf(`([0-9]+(\.[0-9]{0,%d}0*)?|\.[0-9]{1,%[1]d}0*)%s`, power, suffix))
		case power < 0:
			forms = append(forms, fmt.Sprintf(`([0-9]*0{%d}|0+)(\.0*)?%s`, -power, suffix))
		default:
			forms = append(forms, `([0-9]+(\.0*)?|\.0+)`+suffix)
		}
	}
	for _, d := range decimal {
		add(d.power, d.suffix)
	}
	for power := -quantity.MaxExponent; power <= quantity.MaxExponent; power++ {
		sign := `\+?`
		if power < 0 {
			sign = "-"
		} else if power == 0 {
			sign = "[+-]?"
		}
		add(power, fmt.Sprintf("[eE]%s0*%d", sign, max(power, -power)))
	}
	return "^(" + strings.Join(forms, "|") + ")$"
}

// count calls int() only with what it takes.
func count(text string, a policy.Annotation) []rule {
	return []rule{{fmt.Sprintf("%s || int(%s) > %d", not(text, policy.CountForm.String()), text, a.Largest),
		fmt.Sprintf("is no number from 1 to %d", a.Largest), "write it like " + a.Example}}
}

// not is the CEL condition that a value does not match.
func not(text, expr string) string { return "!" + text + ".matches(" + raw(expr) + ")" }
