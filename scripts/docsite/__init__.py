"""The documentation site: parsing pages, generating pages, and building the site.

python -m docsite reference     # write the generated pages and plots
python -m docsite paper         # measure on the committed recordings, and write docs/paper.md
python -m docsite explanations  # write the explanations of docs/guides/traces.md, by stub models
python -m docsite screenshots   # take the pictures of the dashboard, with stub models
python -m docsite cases         # ask the questions of the paper's case studies again
python -m docsite build SITE    # stage docs/, run the generator, check every link of the result
"""
