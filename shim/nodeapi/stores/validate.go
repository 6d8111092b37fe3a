package stores

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
)

// maxHost is the longest DNS name (RFC 1035, section 2.3.4).
const maxHost = 253

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
	return append(errs, behindTwice(entries)...)
}

// behindTwice are buckets that are written behind and that another store has, too: by that name nobody would look for what
// is pending.
func behindTwice(entries []entry) (errs field.Errors) {
	for i, e := range entries {
		for j, other := range entries {
			if e.S3 == nil || other.S3 == nil || i == j || strings.TrimSuffix(e.S3.Endpoint, "/") != strings.TrimSuffix(other.S3.Endpoint, "/") {
				continue
			}
			for _, bucket := range slices.Sorted(maps.Keys(e.S3.Write)) {
				if e.S3.Write[bucket] == WriteBack && slices.Contains(other.S3.Buckets, bucket) {
					errs = append(errs, &field.Error{Field: fmt.Sprintf("[%d].s3.write[%q]", i, bucket), Value: WriteBack,
						Problem: fmt.Sprintf("is of a bucket that [%d] has too", j), Fix: "list a bucket that is written behind in one store"})
				}
			}
		}
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
	kinds := e.kinds()
	for _, k := range kinds {
		k.validate(check)
	}
	e.validateFresh(check)
	for i, bucket := range e.Shared {
		if len(kinds) == 1 && !e.store().Allows(bucket) {
			check(fmt.Sprintf(".shared[%d]", i), bucket, "is no bucket of the store", "name one of the store's buckets, keyspaces or hosts")
		}
	}
	switch {
	case len(kinds) == 0:
		check("."+KindS3, "", "is missing", "say where the store is, by one of "+kindNames)
	case len(kinds) > 1:
		check("", "", "has more than one of "+kindNames, "make a store of each, with a name of its own")
	}
	return errs
}

// checker notes a problem with a field, if there is one.
type checker func(name, value, problem, fix string)

const secretFix = "name the secret that holds the credentials: " + field.LabelFix

// secret checks the name of a secret that may be left out.
func (check checker) secret(name, value string) {
	if value != "" {
		check(name, value, labelProblem(value), secretFix)
	}
}

// buckets checks the names of what functions may read.
func (check checker) buckets(name string, values []string, names reference.Names) {
	if len(values) == 0 {
		check(name, "", "is empty", "name at least one that functions may read")
	}
	for i, v := range values {
		at := fmt.Sprintf("%s[%d]", name, i)
		if strings.ContainsAny(v, "*?") {
			check(at, v, "is a wildcard", "name each one")
			continue
		}
		check(at, v, names.Problem(v), "write it like "+names.Like)
	}
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

// addressProblem accepts host:port.
func addressProblem(a string) (problem, fix string) {
	const example = "write it like redis.example.com:6379"
	switch {
	case a == "":
		return "is missing", example
	case strings.Contains(a, "@"):
		return "holds a user or password", "put the credentials into the secret that credentialsSecret names"
	case !strings.Contains(a, ":"):
		return "has no port", example
	}
	if reference.HTTPBuckets.Problem(a) != "" {
		return "is not host:port", example
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
