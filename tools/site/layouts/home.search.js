{{- /* The index of the search: the text below each heading, without marks. */ -}}
{{- $index := slice -}}
{{- range $group := partialCached "groups.html" . -}}
  {{- range $page := .pages -}}
    {{- $weight := cond (and (not .IsHome) (eq .File.ContentBaseName "README")) 0.4 $group.weight -}}
    {{- range split (replaceRE `<h[1-6] id="` "\x00" .Content) "\x00" -}}
      {{- $address := strings.TrimPrefix "/" $page.RelPermalink }}{{ $heading := "" }}{{ $text := . -}}
      {{- with findRESubmatch `(?s)^([^"]*)">(.*?)</h[1-6]>(.*)` . -}}
        {{- $part := index . 0 }}{{ $address = print $address "#" (index $part 1) }}{{ $heading = index $part 2 }}{{ $text = index $part 3 -}}
      {{- end -}}
      {{- $text = $text | plainify | htmlUnescape | replaceRE `\s+` " " | strings.TrimSpace -}}
      {{- if or $heading $text -}}
        {{- $index = $index | append (dict
          "p" (partial "title.html" $page) "h" ($heading | plainify | htmlUnescape) "a" $address "t" $text "w" $weight) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
window.searchIndex = {{ $index | jsonify }};
