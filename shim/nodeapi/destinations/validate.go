package destinations

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
)

const (
	// kindNames are the kinds in words.
	kindNames = "tcp, tls, postgres and redis"
	// maxNameBytes is the longest name that PostgreSQL keeps whole (NAMEDATALEN).
	maxNameBytes = 63
	// maxDB is far above the databases that a server of Redis has; the default is 16.
	maxDB = 1 << 20

	addressFix = "write it like db.example.com:5432"
	secretFix  = "name the secret that holds the password: " + field.LabelFix
)

// validate returns what is wrong with the entries, of which ds are made.
func validate(entries []entry, ds Destinations) field.Errors {
	var errs field.Errors
	first := map[string]int{}
	for i, e := range entries {
		c := checker{at: fmt.Sprintf("[%d]", i), errs: &errs}
		if j, ok := first[e.Name]; ok && e.Name != "" {
			c.check(".name", e.Name, fmt.Sprintf("is the name of [%d] too", j), "give each destination a name of its own")
		} else {
			first[e.Name] = i
		}
		c.entry(e, ds[i])
	}
	return errs
}

// checker notes problems of one entry.
type checker struct {
	at   string
	errs *field.Errors
}

// check notes a problem with a field, if there is one.
func (c checker) check(name, value, problem, fix string) {
	if problem != "" {
		*c.errs = append(*c.errs, &field.Error{Field: c.at + name, Value: value, Problem: problem, Fix: fix})
	}
}

func (c checker) entry(e entry, d Destination) {
	c.check(".name", e.Name, labelProblem(e.Name), field.LabelFix)
	for i, ns := range e.Namespaces {
		c.check(fmt.Sprintf(".namespaces[%d]", i), ns, labelProblem(ns), "name a namespace: "+field.LabelFix)
	}
	if e.Origin != "" && e.Origin != Sandbox && e.Origin != Node {
		c.check(".origin", string(e.Origin), "is not where connections are made", "use sandbox or node")
	}
	switch {
	case e.Unused == nil:
	case d.Origin == Sandbox:
		c.check(".unused", strconv.Itoa(*e.Unused), "is for the origin node: a sandbox's connections are all its own",
			"remove it, or add origin: node")
	case *e.Unused < 1 || *e.Unused > MaxUnused:
		c.check(".unused", strconv.Itoa(*e.Unused), "is out of range", fmt.Sprintf("use 1 to %d", MaxUnused))
	}
	switch kinds := e.kinds(); len(kinds) {
	case 0:
		c.check("."+KindTCP, "", "is missing", "say what the destination is, by one of "+kindNames)
	case 1:
		c.kind("."+kinds[0], d)
	default:
		c.check("", "", "has more than one of "+kindNames, "make a destination of each, with a name of its own")
	}
}

// kind checks what an entry says of its one kind.
func (c checker) kind(at string, d Destination) {
	problem, fix := addressProblem(d.Address)
	c.check(at+".address", d.Address, problem, fix)
	if d.Secret != "" {
		c.check(at+".credentialsSecret", d.Secret, labelProblem(d.Secret), secretFix)
	}
	if d.Kind == KindPostgres {
		if d.User == "" {
			c.check(at+".user", "", "is missing", "name the user that the sessions are logged in as")
			return
		}
		c.name(at+".database", d.Database)
	}
	c.name(at+".user", d.User)
	if d.DB < 0 || d.DB > maxDB {
		c.check(at+".db", strconv.Itoa(d.DB), "is not the number of a database",
			"use 0 or the number that the server knows it by")
	}
	if d.TLS == nil {
		return
	}
	if d.Kind != KindTLS {
		at += ".tls"
	}
	// Of the roots nothing is repeated: they may be a key by mistake.
	problem, fix = rootsProblem(d.TLS.Roots)
	c.check(at+".roots", "", problem, fix)
	if name := d.TLS.ServerName; name != "" && (strings.Contains(name, ":") || reference.HTTPBuckets.Problem(name) != "") {
		c.check(at+".serverName", name, "is not a host's name",
			"write it like db.example.com, in lower case and without a port")
	}
}

// name checks the name of a user or a database.
func (c checker) name(at, name string) {
	if len(name) > maxNameBytes || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		c.check(at, name, "is not a name", fmt.Sprintf("use at most %d bytes without control characters", maxNameBytes))
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
	switch {
	case a == "":
		return "is missing", addressFix
	case strings.Contains(a, "@"):
		return "holds a user or password",
			"name the user by user, and put the password into the secret that credentialsSecret names"
	case !strings.Contains(a, ":"):
		return "has no port", addressFix
	case reference.HTTPBuckets.Problem(a) != "":
		return "is not host:port", addressFix
	}
	// The metadata of clouds is there, and no server.
	at, err := netip.ParseAddrPort(a)
	if ip := at.Addr(); err == nil && (ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified()) {
		return "is no server's address", addressFix
	}
	return "", ""
}

// rootsProblem accepts certificates, with comments between them.
func rootsProblem(roots string) (problem, fix string) {
	const example = "write certificates, each from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----"
	if strings.Contains(roots, "PRIVATE KEY") {
		return "holds a private key",
			"remove the key, and replace it wherever it is used: nodes and their operators could read it here"
	}
	for rest := []byte(roots); len(bytes.TrimSpace(rest)) > 0; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil || block.Type != "CERTIFICATE" {
			return "holds something that is not a certificate", example
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return "holds a certificate that cannot be read", example
		}
	}
	return "", ""
}
