package decode

import (
	"strings"
	"testing"
)

// read reads {"n": a number, "list": [whole numbers from 0 to 3], "up": a Boolean or null, "x": any value}.
func read(text string) error {
	r := NewReader([]byte(text))
	err := r.Object(func(key string) (err error) {
		switch key {
		case "n":
			_, err = r.Number()
		case "list":
			err = r.List(3, func(int) error { _, err := r.Integer(0, 3); return err })
		case "up":
			if !r.Null() {
				_, err = r.Boolean()
			}
		case "name":
			_, err = r.Text()
		case "x":
			err = r.Skip()
		default:
			err = r.Errorf("unknown field")
		}
		return err
	})
	if err == nil {
		err = r.End()
	}
	return err
}

func TestReader(t *testing.T) {
	for text, want := range map[string]string{
		`{"n":-0,"list":[0,1,3],"up":null,"name":"\u00e9","x":{"a":[1,true,null]}} `: "",
		``:                                   "line 1 column 1: the text ends: want an object",
		`[]`:                                 "want an object",
		"{\"n\":1,\n":                        "line 2 column 1: the text ends: want a field name",
		`{"n":1e999}`:                        "n: number 1e999 is not finite",
		`{"n":01}`:                           "line 1 column 7: ",
		`{"n":"1"}`:                          "n: want a number",
		`{"n":1,"n":2}`:                      `field "n" appears twice`,
		`{"list":[1,{}]}`:                    "list[1]: want a number",
		`{"list":[1,0.5]}`:                   "list[1]: 0.5 is not an integer",
		`{"list":[1,4]}`:                     "list[1]: 4 is outside 0..3",
		`{"list":[1,1,1,1]}`:                 "list: more than 3 elements",
		`{"list":[1,]}`:                      "list[1]: line 1 column 11: ",
		`{"up":0}`:                           "up: want true or false",
		`{"up":nul}`:                         "up: line 1 column ",
		"{\"name\":\"\xff\"}":                "name: line 1 column ",
		`{"x":[{"a":1,"a":2}]}`:              `x[0]: field "a" appears twice`,
		`{"other":1}`:                        "other: unknown field",
		`{"a\nb":1}`:                         `"a\nb": unknown field`,
		`{} {}`:                              "line 1 column 5: unexpected text after the value",
		`{}}`:                                "line 1 column 3: unexpected text after the value",
		`{"x":` + strings.Repeat("[", 1<<20): "line 1 column 70: nested deeper than 64",
	} {
		err := read(text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.80s: %v, want %s", text, err, want)
		}
	}
}
