package admission

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/filters/filterapi"
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
			refused = append(
				refused,
				fmt.Sprintf("%s.startsWith('%s://') && %s.matches(%s)", text, k.Scheme, bucket, raw("^("+pattern+")$")),
			)
		}
	}
	return strings.Join(refused, " || ")
}

// inputNames matches the keys of named inputs.
var inputNames = "^" + regexp.QuoteMeta(filterapi.AnnotationNamed) + "(" + reference.InputName() + ")$"

// inputs checks all input references of an object, a list of keys, by the rules of
// reference.ParseTemplate.
func inputs(on policy.Objects, a policy.Annotation) []variable {
	named := "[]"
	if on == policy.Functions {
		named = "variables.annotations.map(k, k).filter(k, k.matches(" + raw(inputNames) + "))"
	}
	formed := fmt.Sprintf("text.size() <= %[1]d && bytes(text).size() <= %[1]d && text.matches(%[2]s)",
		reference.MaxTemplateBytes, raw(formed()))
	// Each placeholder stands for a harmless value: what is wrong then, is wrong with any. The
	// path's segments come after "s3:", "" and the bucket; as of the other forms.
	expanded := "text.split('{').map(p, p.contains('}') ? 'x' + p.substring(p.indexOf('}') + 1) : p).join('').split('/')"
	wrong := chosen(inputRules(a))
	if a.Word != "" {
		wrong = fmt.Sprintf("k == %s && text == %s ? ''\n: %s", quote(policy.KeyInput), quote(a.Word), wrong)
	}
	wrong = let("key", "segments.join('/').substring(segments[0].size() + segments[2].size() + 3)", wrong)
	wrong = let("segments", "k in variables.inputsFormed ? "+expanded+" : ['s3:', '', 'x', 'x']", wrong)
	wrong = let("text", "variables.annotations[k]", wrong)
	why := "string(w[1])"
	for _, other := range policy.Annotations(on) {
		if other.Key == policy.KeyNamedInput { // has another example
			why = fmt.Sprintf("(w[0] == %s ? string(w[1]) : string(w[1]).replace(%s, %s))",
				quote(policy.KeyInput), quote(a.Like()), quote(other.Like()))
		}
	}
	problem := "string(w[0]) + ': ' + " + shown("variables.annotations[w[0]]") + " + " + why
	return []variable{
		{"inputsNamed", named},
		{"inputs", fmt.Sprintf("[%s].filter(k, k in variables.annotations) +\n"+
			"  (variables.inputsNamed.size() > %d ? [] : variables.inputsNamed)", quote(policy.KeyInput), reference.MaxNamed)},
		{"inputsFormed", "variables.inputs.filter(k, " + let("text", "variables.annotations[k]", formed) + ")"},
		{"inputsWrong", "variables.inputs.map(k, [dyn(k), dyn(" + wrong + ")]).filter(w, w[1] != '')"},
		{"inputsGood", "variables.inputsFormed.filter(k, !variables.inputsWrong.exists(w, w[0] == k))"},
		{"inputProblem", fmt.Sprintf("variables.inputsNamed.size() > %d ? %s\n"+
			": variables.inputsWrong.map(w, %s).join('; and ')", reference.MaxNamed,
			quote(policy.KeyNamedInput+": "+policy.TooManyNamed+"; "+policy.TooManyNamedFix), problem)},
	}
}

// let is the CEL of an expression in which a name stands for another one.
func let(name, is, expression string) string {
	return "[" + is + "].map(" + name + ",\n" + expression + ")[0]"
}

// inputRules are those of one reference: its text, its segments and its key.
func inputRules(a policy.Annotation) []rule {
	fix := a.Like()
	no := func(wrong, why string) rule { return rule{wrong, "is not an input reference: " + why, fix} }
	long := fmt.Sprintf("text.size() > %[1]d || bytes(text).size() > %[1]d", reference.MaxTemplateBytes)
	rules := []rule{
		{"!(" + long + ") && text.matches(" + raw(reference.Userinfo()) + ")", "holds a user or password",
			"remove it; the operator's store has the credentials"},
		no(long, fmt.Sprintf("is longer than %d bytes", reference.MaxTemplateBytes)),
		no(not("text", "^"+reference.Beginning()), reference.OtherStore()),
		no(not("text", "^"+reference.Beginning()+"[^/]*/"), reference.NoKey),
	}
	if a.Literal {
		rules = append(rules, rule{"text.contains('{')", policy.NotLiteral, fix})
	}
	return append(rules, []rule{
		no("!(k in variables.inputsFormed)", "has a bucket or placeholder that is none, or no key: "+
			"a bucket is a name or one placeholder, those of s3:// have 3 to 63 of a-z, 0-9, dots and hyphens, "+
			"placeholders are {header.<name>} in lower case, {query.<name>} and {path.<name>}, "+
			"and modifiers |urldecode and |trimprefix:<text>"),
		no("text.matches("+raw(reference.RefusedPlaceholder())+")",
			"names a header that may not name an input: host, one with credentials, or one of the gateway's own"),
		no(refusedBucket("text", "segments[2]"),
			"has a bucket whose name is reserved, looks like an IP address, or has two dots in a row"),
		no(fmt.Sprintf("bytes(key).size() > %d", reference.MaxKeyBytes),
			fmt.Sprintf("key is longer than %d bytes", reference.MaxKeyBytes)),
		no(`key.matches(r'\p{Cc}')`, "key has control characters"),
		no("key.startsWith('/')", "key begins with a slash"),
		no("key.endsWith(' ')", "key ends with a space"),
		no("segments.exists(s, s == '.')", `key has the path segment "."`),
		no("segments.exists(s, s == '..')", `key has the path segment ".."`),
		no(fmt.Sprintf("text.split('{').size() > %d", reference.MaxPlaceholders+1),
			fmt.Sprintf("has more than %d placeholders", reference.MaxPlaceholders)),
	}...)
}

// route checks a path by the rules of reference.ParseRoute.
func route(name string, a policy.Annotation) ([]variable, []rule) {
	text, names := "variables."+name, "variables."+name+"Names"
	formed := fmt.Sprintf("%[1]s.size() <= %[2]d && %[1]s.matches(%[3]s)",
		text, reference.MaxRouteBytes, raw("^("+reference.RoutePattern()+")$"))
	segments := text + ".split('/').filter(s, s.startsWith('{'))"
	vs := []variable{
		{
			name + "Names",
			formed + " ? " + segments + ".map(s, s.substring(s.startsWith('{+') ? 2 : 1, s.size() - 1)) : []",
		},
	}
	fix := "write it like " + a.Example
	return vs, []rule{
		{"!(" + formed + ")", fmt.Sprintf("is not a path: it has at most %d bytes, begins with a slash, and its segments are "+
			"{<name>}, or letters, digits and - . _ ~ : @, or at the end {+<name>}", reference.MaxRouteBytes), fix},
		{
			fmt.Sprintf("!%[1]s.all(n, %[1]s.filter(m, m == n).size() == 1)", names),
			"is not a path: has a variable twice", fix,
		},
	}
}

// pathMatches holds the variables of good inputs against a good path, as policy.Parse does. An
// absent path has no variables.
var pathMatches = []variable{
	{"pathVariables", quote(policy.KeyPath) + " in variables.annotations ? variables.pathNames : []"},
	{"pathMatchProblem", "variables.pathWrong != '' ? ''\n" +
		": variables.inputsGood.filter(k, !variables.annotations[k].split('{').filter(p, p.startsWith('path.'))\n" +
		"    .all(p, p.split('}')[0].split('|')[0].substring(5) in variables.pathVariables))\n" +
		"  .map(k, k + ': ' + " + shown("variables.annotations[k]") + " + " +
		quote(policy.NotInPath+"; "+policy.NotInPathFix) + ").join('; and ')"},
}

// granted holds good inputs against the operator's stores, as policy.Parse does with
// those that are granted to the namespace.
var granted = []variable{
	{"granted", "variables.stores.filter(s, s.namespaces.size() == 0 || request.namespace in s.namespaces)"},
	{"storeGiven", quote(policy.KeyStore) + " in variables.annotations"},
	{"storeName", "variables.storeGiven ? variables.store : " + quote(policy.DefaultStore)},
	{"chosen", "variables.granted.filter(s, s.name[0] == variables.storeName)"},
	{"storeMatters", "variables.inputsGood.size() > 0 && (!variables.storeGiven || variables.storeWrong == '')"},
	// A bucket that a header names is checked by the node, for each request.
	{"grantProblem", "!variables.storeMatters ? ''\n" +
		": variables.chosen.size() == 0\n" +
		"  ? " + noStore + "\n" +
		": variables.inputsGood.map(k, " + let("text", "variables.annotations[k]",
		"!(text.split('://')[0] in variables.chosen[0].schemes)\n"+
			"  ? k + ': ' + "+shown("text")+" + 'does not begin as references to store ' + "+
			"variables.storeName + ' do; begin it with ' + "+
			"variables.chosen[0].schemes.map(s, s + '://').join(' or ') + ', or name another store in "+policy.KeyStore+"'\n"+
			": text.split('/')[2].contains('{') || text.split('/')[2] in variables.chosen[0].buckets ? ''\n"+
			": k + ': ' + "+shown("text")+" + 'reads a bucket that store ' + "+
			"variables.storeName + ' does not allow; use one of ' + "+
			firstNames("variables.chosen[0].buckets")+" + ', or ask the operator to allow it'") +
		").filter(p, p != '').join('; and ')"},
}

// noStore is the CEL of what is said of a store that is none.
var noStore = quote(policy.KeyStore+": ") + " + strings.quote(variables.storeName) + ' is not among the operator\\'s stores; ' +\n" +
	"    (variables.granted.size() == 0 ? 'ask the operator to allow it' : 'use one of ' + " + firstNames("variables.granted.map(s, s.name[0])") + ")"

// firstNames is the CEL of a list's first names, as many as fit a line.
func firstNames(names string) string {
	const most = 8
	return fmt.Sprintf("(%[1]s.size() <= %[2]d ? %[1]s.join(', ') : [0, 1, 2, 3, 4, 5, 6, 7].map(i, %[1]s[i]).join(', ') + ' and ' + string(%[1]s.size() - %[2]d) + ' more')", names, most)
}
