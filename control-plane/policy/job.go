package policy

import "slices"

// jobAnnotations are those of jobs: what functions have of them means the same.
var jobAnnotations = makeJobAnnotations()

func makeJobAnnotations() []Annotation {
	var all []Annotation
	for _, a := range annotations {
		switch a.Key {
		case KeyInput:
			// No request names it.
			a.Absent, a.Example, a.Word, a.Literal = "none: it is no job of Headstart's", "s3://videos/camera-7/1.mjpeg", "", true
		case KeyStore, KeyInputLimit, KeyReadyTimeout:
		default:
			continue
		}
		all = append(all, a)
	}
	return append(all, Annotation{
		Key: KeyReadBy, Kind: Choice, Default: ReadByFile, Example: ReadBySocket, Choices: []string{ReadByFile, ReadBySocket}, Not: "is not how a job reads its input", Meaning: readByMeaning,
		set: func(p *Policy, v value) { p.ReadBySocket = v.text == ReadBySocket },
	})
}

// JobAnnotations returns all that a job may have, in the order of the reference.
func JobAnnotations() []Annotation { return slices.Clone(jobAnnotations) }

// JobKeys returns their keys.
func JobKeys() []string { return keys(jobAnnotations) }

const readByMeaning = `says how a job's program reads its input. With ` + "`file`" + ` it starts when the file is there, complete.
With ` + "`socket`" + ` it starts at once, finds no file, and reads the input by its [socket](socket.md#reading-an-input) while that arrives.`
