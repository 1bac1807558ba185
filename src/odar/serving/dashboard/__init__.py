"""What a person looks at: plain HTML, CSS and ES modules in `static/`, served by the gateway as they are."""
