"""The documentation site: what its pages hold, what is generated for them, and how it is built.

python -m docsite reference     # write the generated pages and plots anew
python -m docsite paper         # measure on the committed recordings, and write docs/paper.md
python -m docsite build SITE    # stage docs/, run the generator, check every link of the result
"""
