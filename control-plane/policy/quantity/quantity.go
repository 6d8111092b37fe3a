// Package quantity reads quantities of Kubernetes: 512Mi, 1.5G, 250m, 1e3.
package quantity

import (
	"errors"
	"math"
	"regexp"

	"k8s.io/apimachinery/pkg/api/resource"
)

// MaxLength is longer than any quantity that fits an int64, with room for leading and
// trailing zeros, in bytes.
const MaxLength = 32

// Syntax is what Kubernetes takes, but for signs and for exponents of more than two digits: the
// library would compute 1e999999999 to the last digit.
const Syntax = `^([0-9]+\.?[0-9]*|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$`

var (
	errSyntax = errors.New("is not a quantity")
	errWhole  = errors.New("is not a whole number of bytes")
	errMillis = errors.New("is finer than a thousandth")
)

var syntax = regexp.MustCompile(Syntax)

// Bytes returns s as a number of bytes, at most the largest int64. Where Kubernetes rounds up,
// Bytes refuses: 512m is half a byte, and its writer meant megabytes. The library itself rounds up
// to a billionth of a byte.
func Bytes(s string) (int64, error) { return scaled(s, 0, errWhole) }

// Millis returns s in thousandths: 1 is 1000, 250m is 250.
func Millis(s string) (int64, error) { return scaled(s, resource.Milli, errMillis) }

// Format returns n bytes with the largest binary suffix that keeps it whole.
func Format(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }

// scaled returns s in units of the scale; the caller gets inexact when that is no whole number.
func scaled(s string, scale resource.Scale, inexact error) (int64, error) {
	if len(s) > MaxLength || !syntax.MatchString(s) {
		return 0, errSyntax
	}
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return 0, errSyntax
	}
	if q.Cmp(*resource.NewScaledQuantity(math.MaxInt64, scale)) >= 0 {
		return math.MaxInt64, nil
	}
	n := q.ScaledValue(scale) // rounded up
	if q.Cmp(*resource.NewScaledQuantity(n, scale)) != 0 {
		return 0, inexact
	}
	return n, nil
}
