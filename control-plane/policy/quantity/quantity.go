// Package quantity reads quantities in the syntax of Kubernetes: 512Mi, 1.5G, 250m, 1e3.
package quantity

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
)

// MaxLength is longer than any quantity that fits an int64, with room for leading and
// trailing zeros, in bytes; it bounds the arithmetic.
const MaxLength = 32

// MaxExponent is the largest power of ten that an int64 can hold.
const MaxExponent = 18

var (
	errSyntax = errors.New("is not a quantity")
	errRange  = errors.New("is out of range")
	errWhole  = errors.New("is not a whole number of bytes")
	errMillis = errors.New("is finer than a thousandth")
)

var syntax = regexp.MustCompile(`^([0-9]+\.?[0-9]*|\.[0-9]+)([A-Za-z]*|[eE][+-]?[0-9]+)$`)

// suffixes are those of k8s.io/apimachinery/pkg/api/resource. There is no kilo in upper
// case and no binary one in lower case.
var suffixes = map[string]*big.Rat{
	"":  big.NewRat(1, 1),
	"n": big.NewRat(1, 1e9), "u": big.NewRat(1, 1e6), "m": big.NewRat(1, 1e3),
	"k": big.NewRat(1e3, 1), "M": big.NewRat(1e6, 1), "G": big.NewRat(1e9, 1),
	"T": big.NewRat(1e12, 1), "P": big.NewRat(1e15, 1), "E": big.NewRat(1e18, 1),
	"Ki": big.NewRat(1<<10, 1), "Mi": big.NewRat(1<<20, 1), "Gi": big.NewRat(1<<30, 1),
	"Ti": big.NewRat(1<<40, 1), "Pi": big.NewRat(1<<50, 1), "Ei": big.NewRat(1<<60, 1),
}

// Bytes returns s as a number of bytes. Where Kubernetes rounds up, Bytes refuses:
// 512m is half a byte, and its writer meant megabytes.
func Bytes(s string) (int64, error) {
	return scaled(s, 1, errWhole)
}

// Millis returns s in thousandths: 1 is 1000, 250m is 250.
func Millis(s string) (int64, error) {
	return scaled(s, 1000, errMillis)
}

// Format returns n bytes with the largest binary suffix that keeps it whole.
func Format(n int64) string {
	for _, s := range []string{"Ei", "Pi", "Ti", "Gi", "Mi", "Ki"} {
		unit := suffixes[s].Num().Int64()
		if n != 0 && n%unit == 0 {
			return fmt.Sprintf("%d%s", n/unit, s)
		}
	}
	return strconv.FormatInt(n, 10)
}

// scaled returns s times scale; the caller gets inexact when that is no whole number.
func scaled(s string, scale int64, inexact error) (int64, error) {
	if len(s) > MaxLength {
		return 0, errSyntax
	}
	parts := syntax.FindStringSubmatch(s)
	if parts == nil {
		return 0, errSyntax
	}
	factor, err := factorOf(parts[2])
	if err != nil {
		return 0, err
	}
	n, ok := new(big.Rat).SetString(parts[1])
	if !ok {
		return 0, errSyntax
	}
	n.Mul(n, factor).Mul(n, big.NewRat(scale, 1))
	if !n.IsInt() {
		return 0, inexact
	}
	if !n.Num().IsInt64() {
		return 0, errRange
	}
	return n.Num().Int64(), nil
}

// factorOf returns what the suffix or decimal exponent multiplies by.
func factorOf(suffix string) (*big.Rat, error) {
	if f, ok := suffixes[suffix]; ok {
		return f, nil
	}
	exp, err := strconv.Atoi(suffix[1:])
	if err != nil || (suffix[0] != 'e' && suffix[0] != 'E') {
		return nil, errSyntax
	}
	if exp < -MaxExponent || exp > MaxExponent {
		return nil, errRange
	}
	power := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exp, -exp))), nil))
	if exp < 0 {
		power.Inv(power)
	}
	return power, nil
}
