package openurl

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// OfAWS returns the parameters of the URL of a service of AWS, or of one that is like it: region, endpoint and others. All others are refused, and
// empty ones.
func OfAWS(u *url.URL, others ...string) (map[string]string, error) {
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errNoURL
	}
	names, values := append([]string{"region", "endpoint"}, others...), map[string]string{}
	for name, all := range q {
		if values[name] = all[0]; !slices.Contains(names, name) || len(all) > 1 || all[0] == "" {
			return nil, fmt.Errorf("the parameter %q of the URL: want %s, once each and with a value", name, strings.Join(names, ", "))
		}
	}
	if e, err := url.Parse(values["endpoint"]); values["endpoint"] != "" && (err != nil || e.Host == "" || e.User != nil || !strings.HasPrefix(e.Scheme, "http")) {
		return nil, errors.New("the parameter endpoint of the URL: want https://host:port, without a user")
	}
	return values, nil
}
