package admission

import (
	"fmt"
	"strings"

	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

// formed matches references that are made of the right parts.
func formed() string {
	var all []string
	for _, k := range reference.Kinds() {
		all = append(all, k.Scheme+"://("+k.Bucket.Pattern()+"|"+reference.BucketPlaceholder()+")")
	}
	return "^(" + strings.Join(all, "|") + ")/([^{}]|" + reference.KeyPlaceholder() + ")+$"
}

// refusedBucket is the CEL of a bucket that has the right form and still is none.
func refusedBucket(text, bucket string) string {
	var refused []string
	for _, k := range reference.Kinds() {
		if pattern := k.Bucket.Refused(); pattern != "" {
			refused = append(refused, fmt.Sprintf("%s.startsWith('%s://') && %s.matches(%s)", text, k.Scheme, bucket, raw("^("+pattern+")$")))
		}
	}
	return strings.Join(refused, " || ")
}

// input checks an input reference by the rules of reference.ParseTemplate.
func input(name string, a policy.Annotation) ([]variable, []rule) {
	text, key := "variables."+name, "variables."+name+"Key"
	fix := a.Like()
	no := func(wrong, why string) rule { return rule{wrong, "is no input reference: " + why, fix} }
	// Each placeholder stands for a harmless value: what is wrong then, is wrong with any.
	expanded := fmt.Sprintf("%s.split('{').map(p, p.contains('}') ? 'x' + p.substring(p.indexOf('}') + 1) : p).join('').split('/')", text)
	vs := []variable{
		{name + "Long", fmt.Sprintf("%[1]s.size() > %[2]d || bytes(%[1]s).size() > %[2]d", text, reference.MaxTemplateBytes)},
		{name + "Formed", fmt.Sprintf("!variables.%sLong && %s.matches(%s)", name, text, raw(formed()))},
		// The path's segments, after "s3:", "" and the bucket; as of the other forms.
		{name + "Segments", fmt.Sprintf("variables.%sFormed ? %s : ['s3:', '', 'x', 'x']", name, expanded)},
		{name + "Key", fmt.Sprintf("variables.%[1]sSegments.join('/').substring(variables.%[1]sSegments[0].size() + variables.%[1]sSegments[2].size() + 3)", name)},
	}
	rules := []rule{
		{"!variables." + name + "Long && " + text + ".matches(" + raw(reference.Userinfo()) + ")", "holds a user or password", "remove it; the operator's store has the credentials"},
		no("variables."+name+"Long", fmt.Sprintf("is longer than %d bytes", reference.MaxTemplateBytes)),
		no(not(text, "^"+reference.Beginning()), reference.OtherStore),
		no(not(text, "^"+reference.Beginning()+"[^/]*/"), reference.NoKey),
	}
	if a.Literal {
		rules = append(rules, rule{text + ".contains('{')", policy.NotLiteral, fix})
	}
	return vs, append(rules, []rule{
		no("!variables."+name+"Formed", "has a bucket or placeholder that is none, or no key: a bucket is a name or one placeholder, those of s3:// have 3 to 63 of a-z, 0-9, dots and hyphens, placeholders are {header.<name>} in lower case, {query.<name>} and {path.<name>}, and modifiers |urldecode and |trimprefix:<text>"),
		no(text+".matches("+raw(reference.RefusedPlaceholder())+")", "names a header that may not name an input: host, one with credentials, or one of the gateway's own"),
		no(refusedBucket(text, "variables."+name+"Segments[2]"), "has a bucket whose name is reserved, looks like an IP address, or has two dots in a row"),
		no(fmt.Sprintf("bytes(%s).size() > %d", key, reference.MaxKeyBytes), fmt.Sprintf("key is longer than %d bytes", reference.MaxKeyBytes)),
		no(key+`.matches(r'\p{Cc}')`, "key has control characters"),
		no(key+".startsWith('/')", "key begins with a slash"),
		no(key+".endsWith(' ')", "key ends with a space"),
		no(fmt.Sprintf("variables.%sSegments.exists(s, s == '.')", name), `key has the path segment "."`),
		no(fmt.Sprintf("variables.%sSegments.exists(s, s == '..')", name), `key has the path segment ".."`),
		no(fmt.Sprintf("%s.split('{').size() > %d", text, reference.MaxPlaceholders+1), fmt.Sprintf("has more than %d placeholders", reference.MaxPlaceholders)),
	}...)
}

// route checks a path by the rules of reference.ParseRoute.
func route(name string, a policy.Annotation) ([]variable, []rule) {
	text, names := "variables."+name, "variables."+name+"Names"
	formed := fmt.Sprintf("%[1]s.size() <= %[2]d && %[1]s.matches(%[3]s)",
		text, reference.MaxRouteBytes, raw("^("+reference.RoutePattern()+")$"))
	segments := text + ".split('/').filter(s, s.startsWith('{'))"
	vs := []variable{
		{name + "Names", formed + " ? " + segments + ".map(s, s.substring(s.startsWith('{+') ? 2 : 1, s.size() - 1)) : []"},
	}
	fix := "write it like " + a.Example
	return vs, []rule{
		{"!(" + formed + ")", fmt.Sprintf("is no path: it has at most %d bytes, begins with a slash, and its segments are "+
			"{<name>}, or letters, digits and - . _ ~ : @, or at the end {+<name>}", reference.MaxRouteBytes), fix},
		{fmt.Sprintf("!%[1]s.all(n, %[1]s.filter(m, m == n).size() == 1)", names), "is no path: has a variable twice", fix},
	}
}

// pathMatches holds the variables of a good input against a good path, as policy.Parse does. An
// absent path has no variables.
var pathMatches = []variable{
	{"pathVariables", quote(policy.KeyPath) + " in variables.annotations ? variables.pathNames : []"},
	{"inputVariables", "variables.inputFormed\n" +
		"  ? variables.input.split('{').filter(p, p.startsWith('path.')).map(p, p.split('}')[0].split('|')[0].substring(5))\n" +
		"  : []"},
	{"pathMatchProblem", "!(" + quote(policy.KeyInput) + " in variables.annotations) || variables.inputWrong != '' ||\n" +
		"  variables.pathWrong != '' || variables.inputVariables.all(n, n in variables.pathVariables) ? ''\n" +
		": " + quote(policy.KeyInput+": ") + " + " + shown("variables.input") + " + " +
		quote(policy.NotInPath+"; "+policy.NotInPathFix)},
}

// granted holds a good input against the operator's stores, as policy.Parse does with
// those that are granted to the namespace.
var granted = []variable{
	{"granted", "variables.stores.filter(s, s.namespaces.size() == 0 || request.namespace in s.namespaces)"},
	{"storeGiven", quote(policy.KeyStore) + " in variables.annotations"},
	{"storeName", "variables.storeGiven ? variables.store : " + quote(policy.DefaultStore)},
	{"chosen", "variables.granted.filter(s, s.name[0] == variables.storeName)"},
	{"storeMatters", quote(policy.KeyInput) + " in variables.annotations && variables.input != " + quote(policy.InputBody) + " && variables.inputWrong == '' && (!variables.storeGiven || variables.storeWrong == '')"},
	{"inputScheme", "variables.inputFormed ? variables.input.split('://')[0] : ''"},
	{"inputBucket", "variables.inputFormed ? variables.input.split('/')[2] : ''"},
	// A bucket that a header names is checked by the node, for each request.
	{"grantProblem", "!variables.storeMatters ? ''\n" +
		": variables.chosen.size() == 0\n" +
		"  ? " + quote(policy.KeyStore+": ") + " + strings.quote(variables.storeName) + ' is not among the operator\\'s stores; ' +\n" +
		"    (variables.granted.size() == 0 ? 'ask the operator to allow it' : 'use one of ' + " + firstNames("variables.granted.map(s, s.name[0])") + ")\n" +
		": !(variables.inputScheme in variables.chosen[0].schemes)\n" +
		"  ? " + quote(policy.KeyInput+": ") + " + " + shown("variables.input") + " + 'does not begin as references to store ' + variables.storeName + ' do; begin it with ' + " +
		"variables.chosen[0].schemes.map(s, s + '://').join(' or ') + ', or name another store in " + policy.KeyStore + "'\n" +
		": variables.inputBucket.contains('{') || variables.inputBucket in variables.chosen[0].buckets ? ''\n" +
		": " + quote(policy.KeyInput+": ") + " + " + shown("variables.input") + " + 'reads a bucket that store ' + variables.storeName + ' does not allow; use one of ' + " +
		firstNames("variables.chosen[0].buckets") + " + ', or ask the operator to allow it'"},
}

// firstNames is the CEL of a list's first names, as many as fit a line.
func firstNames(names string) string {
	const most = 8
	return fmt.Sprintf("(%[1]s.size() <= %[2]d ? %[1]s.join(', ') : [0, 1, 2, 3, 4, 5, 6, 7].map(i, %[1]s[i]).join(', ') + ' and ' + string(%[1]s.size() - %[2]d) + ' more')", names, most)
}
