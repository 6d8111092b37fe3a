package stores

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/headstart-mesh/headstart/control-plane/policy/field"
)

// maxHost is the longest DNS name (RFC 1035, section 2.3.4).
const maxHost = 253

// bucketName follows the naming rules of S3 for general purpose buckets; two dots in a
// row and addresses are refused apart.
var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

const bucketFix = "use 3 to 63 of a-z, 0-9, - and single dots, starting and ending with a letter or digit"

// validate returns what is wrong with the entries.
func validate(entries []entry) field.Errors {
	var errs field.Errors
	first := map[string]int{}
	for i, e := range entries {
		at := fmt.Sprintf("[%d]", i)
		if j, ok := first[e.Name]; ok && e.Name != "" {
			errs = append(errs, &field.Error{Field: at + ".name", Value: e.Name, Problem: fmt.Sprintf("is the name of [%d] too", j), Fix: "give each store a name of its own"})
		}
		first[e.Name] = i
		errs = append(errs, e.validate(at)...)
	}
	return errs
}

func (e entry) validate(at string) field.Errors {
	var errs field.Errors
	check := func(name, value string, problem, fix string) {
		if problem != "" {
			errs = append(errs, &field.Error{Field: at + name, Value: value, Problem: problem, Fix: fix})
		}
	}
	check(".name", e.Name, labelProblem(e.Name), field.LabelFix)
	for i, ns := range e.Namespaces {
		check(fmt.Sprintf(".namespaces[%d]", i), ns, labelProblem(ns), "name a namespace: "+field.LabelFix)
	}
	if e.S3 == nil {
		check(".s3", "", "is missing", "say where the store is: endpoint, buckets, credentialsSecret")
		return errs
	}
	problem, fix := endpointProblem(e.S3.Endpoint)
	check(".s3.endpoint", e.S3.Endpoint, problem, fix)
	if e.S3.Region != "" {
		check(".s3.region", e.S3.Region, labelProblem(e.S3.Region), field.LabelFix)
	}
	check(".s3.credentialsSecret", e.S3.CredentialsSecret, labelProblem(e.S3.CredentialsSecret), "name the secret that holds the credentials: "+field.LabelFix)
	if len(e.S3.Buckets) == 0 {
		check(".s3.buckets", "", "is empty", "name at least one bucket that functions may read")
	}
	for i, b := range e.S3.Buckets {
		problem, fix := bucketProblem(b)
		check(fmt.Sprintf(".s3.buckets[%d]", i), b, problem, fix)
	}
	return errs
}

func labelProblem(s string) string {
	switch {
	case s == "":
		return "is missing"
	case !field.IsLabel(s):
		return "is not a DNS label"
	}
	return ""
}

func bucketProblem(b string) (problem, fix string) {
	if strings.ContainsAny(b, "*?") {
		return "is a wildcard", "name each bucket"
	}
	_, err := netip.ParseAddr(b)
	if err == nil || !bucketName.MatchString(b) || strings.Contains(b, "..") {
		return "is not a bucket's name", bucketFix
	}
	return "", ""
}

// endpointProblem accepts scheme, host and port only: a path would be taken for a bucket,
// and userinfo would be a secret in a file that is not one.
func endpointProblem(s string) (problem, fix string) {
	const example = "write it like https://s3.example.com:9000"
	if s == "" {
		return "is missing", example
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		// The error's own text repeats the value, userinfo included.
		return "is not a URL", example
	case u.User != nil:
		return "holds a user or password", "put the credentials into the secret that credentialsSecret names"
	case u.Scheme != "http" && u.Scheme != "https":
		return "is not an http or https URL", example
	case u.Hostname() == "" || len(u.Hostname()) > maxHost:
		return "has no valid host", example
	case !validPort(u):
		return "has no valid port", "use 1 to 65535 or leave the port out"
	case u.Path != "" || u.RawQuery != "" || u.ForceQuery || strings.Contains(s, "#"):
		return "has more than scheme, host and port", "remove what follows the host and port"
	}
	return "", ""
}

func validPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && n > 0
}
