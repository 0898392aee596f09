"""The command line: verbs over the lake's parts. stdout is data, stderr is talk."""
