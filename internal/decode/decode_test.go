package decode

import "testing"

type document struct {
	Map   []int          `json:"map"`
	Names map[string]int `json:"names"`
	Inner struct {
		Port *uint16 `json:"port"`
		Up   bool    `json:"up"`
		DBm  float64 `json:"dbm"`
		Name string  `json:"name"`
	} `json:"inner"`
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                               "want an object, not a list",
		`{"map":{}}`:                       "map: want a list, not an object",
		`{"map":[1,"2"]}`:                  "map: want a whole number, not text",
		"{\n\"map\":[1,\n1.5]}":            "line 3: map: want a whole number, not 1.5",
		`{"names":[1]}`:                    "names: want an object, not a list",
		`{"inner":{"port":-1}}`:            "inner.port: want a whole number from 0 to 65535, not -1",
		`{"inner":{"port":70000}}`:         "inner.port: want a whole number from 0 to 65535, not 70000",
		`{"inner":{"up":1}}`:               "inner.up: want true or false, not a number",
		`{"inner":{"dbm":true}}`:           "inner.dbm: want a number, not true or false",
		`{"inner":{"name":5}}`:             "inner.name: want text, not a number",
		`{"mapp":[]}`:                      `unknown field "mapp"`,
		``:                                 "no text",
		`{"map":[1`:                        "the text ends within a value",
		"{\n\"map\":[1,]}":                 "line 2: invalid character ']' looking for beginning of value",
		`{"map":[1]} x`:                    "text after the value",
		"{\"map\":[1]}\n{\"map\":[1,2,3]}": "line 2: text after the value",
	} {
		var d document
		if err := StrictJSON([]byte(text), &d); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	var d document
	if err := JSON([]byte(`{"mapp":[]}`), &d); err != nil {
		t.Errorf("JSON refuses a field that it does not know: %v", err)
	}
	if err := JSON([]byte(`{"map":{}}`), &d); err == nil || err.Error() != "map: want a list, not an object" {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"": "no text", `{"map":[1`: "the text ends within a value", `{}}`: "invalid character '}' after top-level value",
	} {
		if err := JSON([]byte(text), &d); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if err := StrictJSON([]byte(" {\"map\":[1]}\n "), &d); err != nil || len(d.Map) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
}
